{{- define "herd.learner.args" -}}
# Every start goes on from the newest checkpoint, if there is one.
- --resume=true
# A pod that ends is started again: a run that is over stays, and keeps its files and metrics within reach.
- --stop.wait_for_signal=true
- --learner.shards={{ include "herd.shards" . }}
- --learner.host=0.0.0.0
- --learner.port=7100
- --learner.paramserver={{ include "herd.address.paramserver" . }}
{{- if include "herd.hasReplay" . }}
- --learner.replay={{ include "herd.addresses.replay" . }}
{{- end }}
# Those that the pod may use, not a laptop's.
- --learner.threads=null
{{- if .Values.learner.gpu.enabled }}
- --learner.device=cuda
{{- end }}
- --learner.metrics_host=0.0.0.0
- --learner.metrics_port=9400
{{- end -}}

{{/* What torchrun would say; nothing for a learner of one shard. */}}
{{- define "herd.learner.env" -}}
- name: HOME
  value: /tmp
- name: OMP_NUM_THREADS
  valueFrom:
    resourceFieldRef:
      containerName: learner
      resource: limits.cpu
{{- if gt (include "herd.shards" . | int) 1 }}
- name: RANK
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
- name: WORLD_SIZE
  value: {{ include "herd.shards" . | quote }}
- name: MASTER_ADDR
  value: {{ include "herd.host.learner" (list . 0) }}
- name: MASTER_PORT
  value: "29500"
# Names the group: while an upgrade replaces one pod after another, old ones and new ones do not train together. The controller gives
# each version of the template another one, whatever it is that changed.
- name: TORCHELASTIC_RUN_ID
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['controller-revision-hash']
{{- end }}
{{- end -}}

{{- define "herd.learner.volumes" -}}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .Values.learner.sharedMemory }}
{{- end -}}
