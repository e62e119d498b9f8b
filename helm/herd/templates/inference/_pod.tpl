{{- define "herd.inference.args" -}}
- --paramserver={{ include "herd.address.weights" . }}
- --listen=*:7600
{{- if .Values.inference.gpu.enabled }}
- --inference.device=cuda
{{- end }}
{{- end -}}
