{{- define "herd.actor.args" -}}
{{- $shards := include "herd.shards" . | int -}}
{{- $links := include "herd.setting" (list . "actor" "links" 2) | int -}}
{{- $enough := add (sub $shards (include "herd.fewestActors" . | int)) 1 | int -}}
# Other pods share the node.
- --actor.pin_to_cpu=false
# Without --index: the parameter server leases indices, because pods of a Deployment have no number.
- --learner={{ include "herd.addresses.learner" . }}
- --paramserver={{ include "herd.address.weights" . }}
{{- if include "herd.has.bandit" . }}
- --bandit={{ include "herd.addresses" (list . "bandit" 7300) }}
{{- end }}
{{- if include "herd.has.inference" . }}
- --inference={{ include "herd.addresses" (list . "inference" 7600) }}
{{- end }}
{{- if gt $enough $links }}
# Actors connect to consecutive shards. With so few actors, fewer links would leave a shard without actors.
- --actor.links={{ $enough }}
{{- end }}
{{- end -}}

{{/* The Deployments of actors, as a JSON list of {name, group, values}: one for each group, or a single one without groups. */}}
{{- define "herd.actor.deployments" -}}
{{- $name := printf "%s-actor" (include "herd.fullname" .) -}}
{{- $shared := omit (include "herd.component" (list . "actor") | fromJson) "groups" -}}
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
(list $ deployment): the replicas of a Deployment; empty if an autoscaler or another tool controls them. If the value is the same as in the
previous release, the current number is kept: if it differs, someone else owns the field, and setting it would cause a conflict.
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

{{/* The annotation that records the replicas of the values. */}}
{{- define "herd.actor.replicasAnnotation" -}}
herd/replicas-in-values
{{- end -}}
