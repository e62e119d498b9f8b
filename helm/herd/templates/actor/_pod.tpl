{{- define "herd.actor.args" -}}
{{- $shards := include "herd.shards" . | int -}}
{{- $links := include "herd.setting" (list . "actor" "links" 2) | int -}}
{{- $enough := add (sub $shards (include "herd.fewestActors" . | int)) 1 | int -}}
# Leased from the parameter server: pods of a Deployment have no number.
- --actor.index=null
# The node is not the pod's alone.
- --actor.pin_to_cpu=false
- --actor.learner={{ include "herd.addresses.learner" . }}
- --actor.paramserver={{ include "herd.address.weights" . }}
{{- if include "herd.hasBandit" . }}
- --actor.bandit={{ include "herd.address.bandit" . }}
{{- end }}
{{- if include "herd.hasInference" . }}
- --actor.inference_service={{ include "herd.address.inference" . }}
{{- end }}
{{- if gt $enough $links }}
# Actors begin at neighbouring shards: with so few of them, fewer links would leave a shard without any.
- --actor.links={{ $enough }}
{{- end }}
- --actor.metrics_host=0.0.0.0
- --actor.metrics_port=9400
{{- end -}}
