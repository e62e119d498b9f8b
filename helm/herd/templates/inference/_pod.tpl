{{- define "herd.inference.args" -}}
- --inference.paramserver={{ include "herd.address.weights" . }}
- --inference.host=*
- --inference.port=7600
{{- if .Values.inference.gpu.enabled }}
- --inference.device=cuda
{{- end }}
- --inference.metrics_host=*
- --inference.metrics_port=9400
{{- end -}}
