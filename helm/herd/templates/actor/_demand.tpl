{{/*
(list $ autoscaling): the wanted number of actors divided by the present one, in PromQL. It falls with the share of time that actors wait
for the learner, and rises with the share of time that the most starved shard waits for actors, because all shards wait for that one. Both
shares are bounded, so one evaluation divides the number by at most ten and multiplies it by at most five. All groups follow one ratio.
*/}}
{{- define "herd.actorsWanted" -}}
{{- $root := index . 0 -}}
{{- $scaling := index . 1 -}}
{{- $rate := printf "{namespace=%q,release=%q}[%s]" $root.Release.Namespace $root.Release.Name $scaling.window -}}
(1 - clamp_max(avg(rate(herd_actor_blocked_seconds_total{{ $rate }})), 0.9))
* {{ sub 1000 (mulf $scaling.targetStarvation 1000 | int) }} / 1000
/ (1 - clamp_max(max(rate(herd_learner_starved_seconds_total{{ $rate }})), 0.8))
{{- end -}}
