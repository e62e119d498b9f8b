{{- define "herd.replay.args" -}}
- --replay_service.replicas={{ include "herd.replayReplicas" . }}
- --replay_service.host=*
- --replay_service.port=7400
# How much may be sent and not yet read follows from their number.
- --learner.shards={{ include "herd.shards" . }}
- --replay_service.metrics_host=*
- --replay_service.metrics_port=9400
{{- end -}}

{{- define "herd.replay.env" -}}
- name: HOME
  value: /tmp
- name: OMP_NUM_THREADS
  value: "1"
# Which part of the episodes is this pod's.
- name: HERD_REPLAY_SERVICE__INDEX
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
{{- end -}}
