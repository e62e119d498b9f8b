{{/* "true" if there is an evaluator; else empty. */}}
{{- define "herd.has.evaluator" -}}
{{- if include "herd.setting" (list . "evaluation" "interval_seconds" "") -}}true{{- end -}}
{{- end -}}

{{- define "herd.evaluator.args" -}}
- --paramserver={{ include "herd.address.weights" . }}
{{- if include "herd.has.bandit" . }}
- --bandit={{ include "herd.addresses" (list . "bandit" 7300) }}
{{- end }}
{{- end -}}

{{/* The name of the claim. A Deployment has no claim templates, so the claim is a separate object. */}}
{{- define "herd.evaluator.claim" -}}
{{- $persistence := (include "herd.component" (list . "evaluator") | fromJson).persistence -}}
{{- $persistence.existingClaim | default (printf "%s-evaluator" (include "herd.fullname" .)) -}}
{{- end -}}

{{- define "herd.evaluator.volume" -}}
{{- $persistence := (include "herd.component" (list . "evaluator") | fromJson).persistence -}}
{{- if or $persistence.enabled $persistence.existingClaim -}}
persistentVolumeClaim:
  claimName: {{ include "herd.evaluator.claim" . }}
{{- else -}}
emptyDir:
  sizeLimit: 64Mi
{{- end -}}
{{- end -}}
