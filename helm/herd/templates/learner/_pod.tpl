{{/* (list $ agent): arguments of a learner. */}}
{{- define "herd.learner.args" -}}
{{- $agent := index . 1 -}}
{{- with index . 0 -}}
# Every start continues from the newest checkpoint, if there is one.
- --resume=true
# A process that ends would be restarted. A finished run therefore waits, so that its files and metrics stay available.
- --stop.wait_for_signal=true
- --learner.shards={{ include "herd.shards" . }}
{{- if gt (include "herd.agents" . | int) 1 }}
- --agent={{ $agent }}
{{- end }}
- --listen=*:7100
- --paramserver={{ include "herd.address.paramserver" . }}
{{- if include "herd.has.population" . }}
- --population={{ include "herd.addresses" (list . "population" 7500) }}
{{- end }}
{{- if include "herd.has.replay" . }}
- --replay={{ include "herd.addresses" (list . "replay" 7400) }}
{{- end }}
# Use the CPUs of the pod, not the number in the experiment.
- --learner.threads=null
{{- if .Values.learner.gpu.enabled }}
- --learner.device=cuda
{{- end }}
{{- end -}}
{{- end -}}

{{/* The ports of a learner's pod, as JSON: those of each of its shards. */}}
{{- define "herd.learner.ports" -}}
{{- $ports := include "herd.ports" (list . "learner") | fromJson -}}
{{- range $local := untilStep 1 (.Values.learner.shardsPerPod | int) 1 -}}
{{- $_ := set $ports (printf "unrolls-%d" $local) (add 7100 $local) -}}
{{- $_ := set $ports (printf "metrics-%d" $local) (add 9400 $local) -}}
{{- end -}}
{{- $ports | toJson -}}
{{- end -}}

{{/* (list $ agent): environment variables of a learner. With several shards they include those that torchrun would set for a node. */}}
{{- define "herd.learner.env" -}}
{{- $agent := index . 1 -}}
{{- with index . 0 -}}
- name: HOME
  value: /tmp
# Without a limit, limits.cpu would be the CPUs of the node.
{{- $resources := (include "herd.component" (list . "learner") | fromJson).resources | default dict }}
{{- $cpu := list }}
{{- range list "limits" "requests" }}
{{- if dig . "cpu" "" $resources }}{{ $cpu = append $cpu (printf "%s.cpu" .) }}{{ end }}
{{- end }}
{{- with first $cpu }}
- name: OMP_NUM_THREADS
  valueFrom:
    resourceFieldRef:
      containerName: learner
      resource: {{ . }}
{{- end }}
{{- if gt (include "herd.shards" . | int) 1 }}
- name: GROUP_RANK
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
- name: LOCAL_WORLD_SIZE
  value: {{ .Values.learner.shardsPerPod | int | quote }}
- name: WORLD_SIZE
  value: {{ include "herd.shards" . | quote }}
- name: MASTER_ADDR
  value: {{ include "herd.host.learner" (list . $agent 0) }}
- name: MASTER_PORT
  value: "29500"
# The name of the group. It differs for each version of the pod template, so old and new pods do not train together during an upgrade.
- name: TORCHELASTIC_RUN_ID
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['controller-revision-hash']
{{- end }}
{{- end -}}
{{- end -}}

{{/* (list $ agent): labels that distinguish the pods of several agents; empty if there is only one agent. */}}
{{- define "herd.learner.labels" -}}
{{- if gt (include "herd.agents" (index . 0) | int) 1 -}}
herd/agent: {{ index . 1 | quote }}
{{- end -}}
{{- end -}}
