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
- --actor.metrics_host=*
- --actor.metrics_port=9400
{{- end -}}

{{/* Every Deployment of actors, as a JSON list of {name, group, values}: one without groups, else one for each. */}}
{{- define "herd.actor.deployments" -}}
{{- $name := printf "%s-actor" (include "herd.fullname" .) -}}
{{- $shared := omit .Values.actor "groups" -}}
{{- $deployments := list -}}
{{- range $group, $own := .Values.actor.groups -}}
{{- $values := (include "herd.patched" (list $shared ($own | default dict)) | fromJson).value -}}
{{- $deployments = append $deployments (dict "name" (printf "%s-%s" $name $group) "group" $group "values" $values) -}}
{{- end -}}
{{- $deployments = $deployments | default (list (dict "name" $name "group" "" "values" $shared)) -}}
{{- range $deployments -}}
{{- $scaling := .values.autoscaling -}}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- fail (printf "actor%s.autoscaling.minReplicas is above maxReplicas" (empty .group | ternary "" (printf ".groups.%s" .group))) -}}
{{- end -}}
{{- end -}}
{{- $deployments | toJson -}}
{{- end -}}

{{/*
(list $ deployment): the replicas of a Deployment; empty if they are controlled elsewhere. If the value is the same as when the Deployment
was last written, the current number stays: a change made since then has another owner, and setting it would cause a conflict.
*/}}
{{- define "herd.actor.replicas" -}}
{{- $root := index . 0 -}}
{{- $given := (index . 1).values.replicas -}}
{{- if not (or (index . 1).values.autoscaling.enabled (kindIs "invalid" $given)) -}}
{{- $live := lookup "apps/v1" "Deployment" $root.Release.Namespace (index . 1).name -}}
{{- $before := dig "metadata" "annotations" (include "herd.actor.replicasAnnotation" .) "" $live -}}
{{- eq $before ($given | int | toString) | ternary (dig "spec" "replicas" $given $live) $given | int -}}
{{- end -}}
{{- end -}}

{{/* Names what the values said of the number of pods. */}}
{{- define "herd.actor.replicasAnnotation" -}}
herd/replicas-in-values
{{- end -}}
