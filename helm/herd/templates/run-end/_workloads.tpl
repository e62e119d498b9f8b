{{/* "true" if the run has an end at which the chart removes what is no longer needed; else empty. */}}
{{- define "herd.has.runEnd" -}}
{{- $stop := list (include "herd.setting" (list . "stop" "env_frames" "")) (include "herd.setting" (list . "stop" "wall_seconds" "")) -}}
{{- if and .Values.runEnd.release (compact $stop) -}}true{{- end -}}
{{- end -}}

{{/*
(list $ component): "true" if the component's results would go with it, because they are in its pods or its claims do not outlive it. A
learner may have copied them to object storage (herd.runEnd.needsCopy).
*/}}
{{- define "herd.runEnd.holdsFiles" -}}
{{- if has (index . 1) (list "learner" "bandit" "evaluator") -}}
{{- $persistence := (include "herd.component" . | fromJson).persistence -}}
{{- $outlives := and $persistence.enabled (eq $persistence.retention.whenDeleted "Retain") -}}
{{- if not (or $outlives $persistence.existingClaim) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* What is removed with the last agent, except learners, as JSON: a list of KIND/NAME. */}}
{{- define "herd.runEnd.workloads" -}}
{{- $name := include "herd.fullname" . -}}
{{- $all := dict "paramserver" (list (printf "statefulsets/%s-paramserver" $name)) -}}
{{- $actors := list -}}
{{- range include "herd.actor.deployments" . | fromJsonArray -}}
{{- $actors = append $actors (printf "deployments/%s" .name) -}}
{{- end -}}
{{- $_ := set $all "actor" $actors -}}
{{- if gt (include "herd.replicas" . | int) 0 -}}
{{- $_ := set $all "paramserver-replica" (list (printf "statefulsets/%s-paramserver-replica" $name)) -}}
{{- end -}}
{{- range $server := include "herd.optionalServers" . | fromJsonArray -}}
{{- $kind := eq $server "inference" | ternary "deployments" "statefulsets" -}}
{{- $_ := set $all $server (list (printf "%s/%s-%s" $kind $name $server)) -}}
{{- end -}}
{{- if include "herd.has.evaluator" . -}}
{{- $_ := set $all "evaluator" (list (printf "deployments/%s-evaluator" $name)) -}}
{{- end -}}
{{- $removed := list -}}
{{- range $component, $workloads := $all -}}
{{- if not (or (has $component $.Values.runEnd.keep) (include "herd.runEnd.holdsFiles" (list $ $component))) -}}
{{- $removed = concat $removed $workloads -}}
{{- end -}}
{{- end -}}
{{- $removed | toJson -}}
{{- end -}}

{{/* "true" if a learner's files outlive it only in object storage; else empty. */}}
{{- define "herd.runEnd.needsCopy" -}}
{{- if and (include "herd.setting" (list . "" "copy_to" "")) (include "herd.runEnd.holdsFiles" (list . "learner")) -}}true{{- end -}}
{{- end -}}

{{/* "true" if learners are removed too; else empty. */}}
{{- define "herd.runEnd.freesLearners" -}}
{{- $loses := and (include "herd.runEnd.holdsFiles" (list . "learner")) (not (include "herd.runEnd.needsCopy" .)) -}}
{{- if not (or (has "learner" .Values.runEnd.keep) $loses) -}}true{{- end -}}
{{- end -}}
