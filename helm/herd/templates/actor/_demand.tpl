{{/*
(list $ autoscaling): how many times the present number of actors is wanted, by PromQL: less by the share of their time that they wait for
the learner, more by the share of its time that a shard of the learner starves: of the one that starves most, since all wait for it. Both
shares are bounded, so that one look changes the number at most tenfold down and fivefold up. Several groups follow one ratio.
*/}}
{{- define "herd.actorsWanted" -}}
{{- $root := index . 0 -}}
{{- $scaling := index . 1 -}}
{{- $rate := printf "{namespace=%q,release=%q}[%s]" $root.Release.Namespace $root.Release.Name $scaling.window -}}
(1 - clamp_max(avg(rate(herd_actor_blocked_seconds_total{{ $rate }})), 0.9))
* {{ sub 1000 (mulf $scaling.targetStarvation 1000 | int) }} / 1000
/ (1 - clamp_max(max(rate(herd_learner_starved_seconds_total{{ $rate }})), 0.8))
{{- end -}}
