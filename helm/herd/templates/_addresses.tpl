{{/* Addresses of all services. Names are short, because a pod's DNS search path adds its own namespace first. */}}

{{- define "herd.address.paramserver" -}}
tcp://{{ include "herd.fullname" . }}-paramserver:7200
{{- end -}}

{{/* The address from which actors fetch weights. */}}
{{- define "herd.address.weights" -}}
{{- if gt (include "herd.replicas" . | int) 0 -}}
tcp://{{ include "herd.fullname" . }}-paramserver-replica:7200
{{- else -}}
{{- include "herd.address.paramserver" . -}}
{{- end -}}
{{- end -}}

{{/* (list $ component): the hosts of an optional server, as JSON: its Service, or every pod of replay in order, as learners use them all. */}}
{{- define "herd.hosts" -}}
{{- $name := printf "%s-%s" (include "herd.fullname" (index . 0)) (index . 1) -}}
{{- $hosts := list $name -}}
{{- if eq (index . 1) "replay" -}}
{{- $hosts = list -}}
{{- range $index := until (include "herd.replayReplicas" (index . 0) | int) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s" $name $index $name) -}}
{{- end -}}
{{- end -}}
{{- $hosts | toJson -}}
{{- end -}}

{{/* (list $ component port): their addresses, separated by commas. */}}
{{- define "herd.addresses" -}}
{{- $addresses := list -}}
{{- $port := index . 2 -}}
{{- range include "herd.hosts" . | fromJsonArray -}}
{{- $addresses = append $addresses (printf "tcp://%s:%d" . (int $port)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{/* (list $ component): the ports at which others connect to a component, as JSON: numbers by name. */}}
{{- define "herd.ports" -}}
{{- $weights := dict "weights" 7200 -}}
{{- $all := dict "paramserver" $weights "paramserver-replica" $weights "bandit" (dict "temperatures" 7300) "replay" (dict "episodes" 7400) -}}
{{- $all = merge $all (dict "population" (dict "orders" 7500) "inference" (dict "actions" 7600) "learner" (dict "unrolls" 7100)) -}}
{{- if gt (include "herd.shards" (index . 0) | int) 1 -}}
{{- $_ := set $all.learner "rendezvous" 29500 -}}
{{- end -}}
{{- index $all (index . 1) | default dict | toJson -}}
{{- end -}}

{{/* (list $ agent): the name of the StatefulSet of an agent's learner. It has no number if there is only one agent. */}}
{{- define "herd.learner.name" -}}
{{- $name := printf "%s-learner" (include "herd.fullname" (index . 0)) -}}
{{- if gt (include "herd.agents" (index . 0) | int) 1 -}}
{{- printf "%s-%d" $name (index . 1 | int) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end -}}

{{/* (list $ agent rank): the host name of a learner shard's pod. */}}
{{- define "herd.host.learner" -}}
{{- $pod := div (index . 2) (index . 0).Values.learner.shardsPerPod -}}
{{- printf "%s-%d.%s-learner" (include "herd.learner.name" .) $pod (include "herd.fullname" (index . 0)) -}}
{{- end -}}

{{/* (list $ agent rank): the address of the metrics of a learner shard. */}}
{{- define "herd.metrics.learner" -}}
http://{{ include "herd.host.learner" . }}:{{ add 9400 (mod (index . 2) (index . 0).Values.learner.shardsPerPod) }}
{{- end -}}

{{/* The addresses of all learner shards, ordered by agent and rank, separated by commas. */}}
{{- define "herd.addresses.learner" -}}
{{- $addresses := list -}}
{{- range $agent := until (include "herd.agents" . | int) -}}
{{- range $rank := until (include "herd.shards" $ | int) -}}
{{- $port := add 7100 (mod $rank $.Values.learner.shardsPerPod) -}}
{{- $addresses = append $addresses (printf "tcp://%s:%d" (include "herd.host.learner" (list $ $agent $rank)) $port) -}}
{{- end -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{/* The IP versions of a Service. */}}
{{- define "herd.ipFamilies" -}}
{{- with .Values.service.ipFamilyPolicy }}
  ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
  ipFamilies: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* (list $ component): the trafficDistribution of its Service. Kubernetes 1.34 renamed PreferClose to PreferSameZone. */}}
{{- define "herd.trafficDistribution" -}}
{{- $renamed := semverCompare ">=1.34-0" (index . 0).Capabilities.KubeVersion.Version -}}
{{- $component := index . 1 -}}
{{- with (index (index . 0).Values $component).trafficDistribution }}
{{- if and (eq . "PreferSameNode") (not $renamed) }}
{{- fail (printf "%s.trafficDistribution: PreferSameNode needs Kubernetes 1.34" $component) }}
{{- end }}
  trafficDistribution: {{ has . (list "PreferClose" "PreferSameZone") | ternary ($renamed | ternary "PreferSameZone" "PreferClose") . }}
{{- end }}
{{- end -}}
