{{/* Who answers where. Short names: the pod's search path completes them with its own namespace first. */}}

{{- define "herd.address.paramserver" -}}
tcp://{{ include "herd.fullname" . }}-paramserver:7200
{{- end -}}

{{/* Whom actors ask for weights. */}}
{{- define "herd.address.weights" -}}
{{- if gt (include "herd.replicas" . | int) 0 -}}
tcp://{{ include "herd.fullname" . }}-paramserver-replica:7200
{{- else -}}
{{- include "herd.address.paramserver" . -}}
{{- end -}}
{{- end -}}

{{- define "herd.address.bandit" -}}
tcp://{{ include "herd.fullname" . }}-bandit:7300
{{- end -}}

{{/* (list $ index): the host name of a replica's pod. */}}
{{- define "herd.host.replay" -}}
{{- $fullname := include "herd.fullname" (index . 0) -}}
{{- printf "%s-replay-%d.%s-replay" $fullname (index . 1 | int) $fullname -}}
{{- end -}}

{{/* Every replica's, in order, as JSON. */}}
{{- define "herd.addresses.replay" -}}
{{- $addresses := list -}}
{{- range $index := until (include "herd.replayReplicas" . | int) -}}
{{- $addresses = append $addresses (printf "tcp://%s:7400" (include "herd.host.replay" (list $ $index))) -}}
{{- end -}}
{{- $addresses | toJson -}}
{{- end -}}

{{/* (list $ rank): the host name of a shard's pod. */}}
{{- define "herd.host.learner" -}}
{{- $fullname := include "herd.fullname" (index . 0) -}}
{{- printf "%s-learner-%d.%s-learner" $fullname (index . 1 | int) $fullname -}}
{{- end -}}

{{/* Every shard's, in the order of ranks, as JSON. */}}
{{- define "herd.addresses.learner" -}}
{{- $addresses := list -}}
{{- range $rank := until (include "herd.shards" . | int) -}}
{{- $addresses = append $addresses (printf "tcp://%s:7100" (include "herd.host.learner" (list $ $rank))) -}}
{{- end -}}
{{- $addresses | toJson -}}
{{- end -}}
