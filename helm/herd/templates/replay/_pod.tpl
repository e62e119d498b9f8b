{{- define "herd.replay.args" -}}
- --replay_service.replicas={{ include "herd.replayReplicas" . }}
- --replay_service.host=*
- --replay_service.port=7400
# The limit of unread messages depends on the number of shards.
- --learner.shards={{ include "herd.shards" . }}
- --replay_service.metrics_host=*
- --replay_service.metrics_port=9400
{{- end -}}

{{- define "herd.replay.env" -}}
- name: HOME
  value: /tmp
- name: OMP_NUM_THREADS
  value: "1"
# The part of the episodes that this pod keeps.
- name: HERD_REPLAY_SERVICE__INDEX
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
{{- end -}}
