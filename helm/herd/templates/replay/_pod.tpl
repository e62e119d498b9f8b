{{- define "herd.replay.args" -}}
- --replay_service.replicas={{ include "herd.replayReplicas" . }}
- --listen=*:7400
# The limit of unread messages depends on the number of shards.
- --learner.shards={{ include "herd.shards" . }}
{{- end -}}

{{- define "herd.replay.env" -}}
- name: HOME
  value: /tmp
- name: OMP_NUM_THREADS
  value: "1"
# The part of the episodes that this pod keeps.
- name: HERD_INDEX
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
{{- end -}}
