{{/* The experiment file, and the settings in it that decide what is rendered. */}}

{{- define "herd.experiment.text" -}}
{{- with .Values.experiment | default dict -}}
{{- kindIs "string" . | ternary . (toYaml .) -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{/* The experiment as a map, in JSON. */}}
{{- define "herd.experiment.map" -}}
{{- $experiment := .Values.experiment | default dict -}}
{{- if kindIs "string" $experiment -}}
{{- $experiment = fromYaml $experiment -}}
{{- if hasKey $experiment "Error" -}}
{{- fail (printf "experiment: not a map of settings in YAML: %s" $experiment.Error) -}}
{{- end -}}
{{- end -}}
{{- $experiment | toJson -}}
{{- end -}}

{{/* (list $ section key default): a setting, as text. The section is empty for settings at the top level. */}}
{{- define "herd.setting" -}}
{{- $section := include "herd.experiment.map" (index . 0) | fromJson -}}
{{- with index . 1 -}}
{{- $section = index $section . | default dict -}}
{{- end -}}
{{- if not (kindIs "map" $section) -}}
{{- fail (printf "experiment: %s must be a map of settings" (index . 1)) -}}
{{- end -}}
{{- $value := index $section (index . 2) -}}
{{- if kindIs "invalid" $value -}}
{{- index . 3 -}}
{{- else -}}
{{- $value -}}
{{- end -}}
{{- end -}}

{{- define "herd.run" -}}
{{- include "herd.setting" (list . "" "name" "run") -}}
{{- end -}}

{{/* The run directory. The working directory of images is /var/lib/herd, so it is runs/NAME, as on a laptop. */}}
{{- define "herd.runDirectory" -}}
/var/lib/herd/runs/{{ include "herd.run" . }}
{{- end -}}

{{- define "herd.agents" -}}
{{- include "herd.setting" (list . "" "agents" 1) -}}
{{- end -}}

{{/* "true" if the agents are a population; else empty. */}}
{{- define "herd.has.population" -}}
{{- if eq (include "herd.setting" (list . "population" "strategy" "none")) "pbt" -}}true{{- end -}}
{{- end -}}

{{/* "true" if learners send copies or points to servers outside of the release; else empty. */}}
{{- define "herd.has.outside" -}}
{{- $online := eq (include "herd.setting" (list . "logging" "wandb" "off")) "online" -}}
{{- if or $online (include "herd.setting" (list . "" "copy_to" "")) (include "herd.setting" (list . "logging" "mlflow" "")) -}}true{{- end -}}
{{- end -}}

{{/* (list $ value section key default): a number of the values; null: that of the experiment. */}}
{{- define "herd.number" -}}
{{- if kindIs "invalid" (index . 1) -}}
{{- include "herd.setting" (list (index . 0) (index . 2) (index . 3) (index . 4)) -}}
{{- else -}}
{{- index . 1 | int -}}
{{- end -}}
{{- end -}}

{{- define "herd.shards" -}}
{{- include "herd.number" (list . .Values.learner.shards "learner" "shards" 1) -}}
{{- end -}}

{{/* The number of pods of each learner. */}}
{{- define "herd.learner.pods" -}}
{{- $shards := include "herd.shards" . | int -}}
{{- $local := .Values.learner.shardsPerPod | int -}}
{{- if mod $shards $local -}}
{{- fail (printf "learner.shardsPerPod: %d shards cannot be divided into pods of %d" $shards $local) -}}
{{- end -}}
{{- div $shards $local -}}
{{- end -}}

{{/* The number of replicas of the parameter server. */}}
{{- define "herd.replicas" -}}
{{- include "herd.number" (list . .Values.paramserverReplica.replicas "paramserver" "replicas" 0) -}}
{{- end -}}

{{/* "true" if a bandit picks temperatures; else empty. */}}
{{- define "herd.has.bandit" -}}
{{- $loss := include "herd.setting" (list . "loss" "kind" "impala") -}}
{{- $ablation := include "herd.setting" (list . "loss" "ablation" "dice") -}}
{{- if and (eq $loss "dice") (ne $ablation "baseline") -}}true{{- end -}}
{{- end -}}

{{/* "true" if learners replay episodes of a shared service; else empty. */}}
{{- define "herd.has.replay" -}}
{{- if eq (include "herd.setting" (list . "replay" "kind" "none")) "shared" -}}true{{- end -}}
{{- end -}}

{{- define "herd.replayReplicas" -}}
{{- include "herd.number" (list . .Values.replay.replicas "replay_service" "replicas" 1) -}}
{{- end -}}

{{/* The servers of the run that not every run has, as JSON. */}}
{{- define "herd.optionalServers" -}}
{{- $found := list -}}
{{- range list "bandit" "replay" "population" "inference" -}}
{{- if include (printf "herd.has.%s" .) $ -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* The components of the run that others connect to, as JSON. */}}
{{- define "herd.servers" -}}
{{- $replica := gt (include "herd.replicas" . | int) 0 | ternary (list "paramserver-replica") list -}}
{{- concat (list "learner" "paramserver") $replica (include "herd.optionalServers" . | fromJsonArray) | toJson -}}
{{- end -}}

{{/* "true" if a service chooses actions for the actors; else empty. */}}
{{- define "herd.has.inference" -}}
{{- if eq (include "herd.setting" (list . "actor" "inference" "local")) "remote" -}}true{{- end -}}
{{- end -}}

{{/* The smallest possible number of actors. It decides how many links an actor needs so that each shard has one. */}}
{{- define "herd.fewestActors" -}}
{{- $sum := 0 -}}
{{- range include "herd.actor.deployments" . | fromJsonArray -}}
{{- $sum = add $sum (.values.autoscaling.enabled | ternary .values.autoscaling.minReplicas .values.replicas | default 0 | int) -}}
{{- end -}}
{{- max 1 $sum -}}
{{- end -}}

{{/* The largest possible number of actors; empty if another tool controls the number of a Deployment. */}}
{{- define "herd.mostActors" -}}
{{- $sum := 0 -}}
{{- $known := true -}}
{{- range include "herd.actor.deployments" . | fromJsonArray -}}
{{- $number := .values.autoscaling.enabled | ternary .values.autoscaling.maxReplicas .values.replicas -}}
{{- $known = and $known (not (kindIs "invalid" $number)) -}}
{{- $sum = add $sum ($number | default 0 | int) -}}
{{- end -}}
{{- if $known -}}{{- $sum -}}{{- end -}}
{{- end -}}

{{/*
(list $ component): a checksum of the settings that the component reads; when it changes, its pods are replaced. Settings that only learners
read are excluded for other components, so that a new learning rate does not replace thousands of actors.
*/}}
{{- define "herd.checksum" -}}
{{- $experiment := omit (include "herd.experiment.map" (index . 0) | fromJson) "placement" -}}
{{- if not (has (index . 1) (list "learner" "population")) -}}
{{- $loss := pick (default dict $experiment.loss) "kind" "ablation" "head" -}}
{{- $experiment = set (omit $experiment "learner" "optimizer" "stop" "sweep" "population") "loss" $loss -}}
{{- if ne (index . 1) "replay" -}}
{{- $experiment = omit $experiment "replay" "replay_service" -}}
{{- end -}}
{{- end -}}
{{- if ne (index . 1) "inference" -}}
{{- $experiment = omit $experiment "inference" -}}
{{- end -}}
{{- if ne (index . 1) "evaluator" -}}
{{- $experiment = omit $experiment "evaluation" -}}
{{- end -}}
{{- $experiment | toJson | sha256sum -}}
{{- end -}}
