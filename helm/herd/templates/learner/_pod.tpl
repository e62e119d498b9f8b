{{/* (list $ agent) */}}
{{- define "herd.learner.args" -}}
{{- $agent := index . 1 -}}
{{- with index . 0 -}}
# Every start goes on from the newest checkpoint, if there is one.
- --resume=true
# A pod that ends is started again: a run that is over stays, and keeps its files and metrics within reach.
- --stop.wait_for_signal=true
- --learner.shards={{ include "herd.shards" . }}
{{- if gt (include "herd.agents" . | int) 1 }}
- --learner.agent={{ $agent }}
{{- end }}
- --learner.host=*
- --learner.port=7100
- --learner.paramserver={{ include "herd.address.paramserver" . }}
{{- if include "herd.hasPopulation" . }}
- --learner.population={{ include "herd.address.population" . }}
{{- end }}
{{- if include "herd.hasReplay" . }}
- --learner.replay={{ include "herd.addresses.replay" . }}
{{- end }}
# Those that the pod may use, not a laptop's.
- --learner.threads=null
{{- if .Values.learner.gpu.enabled }}
- --learner.device=cuda
{{- end }}
- --learner.metrics_host=*
- --learner.metrics_port=9400
{{- end -}}
{{- end -}}

{{/* (list $ agent): what torchrun would say; nothing for a learner of one shard. */}}
{{- define "herd.learner.env" -}}
{{- $agent := index . 1 -}}
{{- with index . 0 -}}
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
  value: {{ include "herd.host.learner" (list . $agent 0) }}
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
{{- end -}}

{{/* (list $ agent): labels that tell the pods of several agents apart; none where there is one. */}}
{{- define "herd.learner.labels" -}}
{{- if gt (include "herd.agents" (index . 0) | int) 1 -}}
herd/agent: {{ index . 1 | quote }}
{{- end -}}
{{- end -}}

{{- define "herd.learner.volumes" -}}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .Values.learner.sharedMemory }}
{{- end -}}
