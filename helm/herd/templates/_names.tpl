{{/* Names and labels. */}}

{{- define "herd.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
The release's name if it says herd, else RELEASE-herd. The longest object is FULLNAME-paramserver-replica, and a StatefulSet's name may have
52 characters before its pods' revision label is too long: so 32. A longer one is cut and told apart by a digest.
*/}}
{{- define "herd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := include "herd.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- if gt (len $full) 32 -}}
{{- printf "%s-%s" ($full | trunc 25 | trimSuffix "-") ($full | sha256sum | trunc 6) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list $ component): what never changes. */}}
{{- define "herd.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "herd.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* (list $ component): of pods. The chart's version is not among them, for a new one alone is no reason to replace pods. */}}
{{- define "herd.podLabels" -}}
{{- $root := index . 0 -}}
{{ include "herd.selectorLabels" . }}
app.kubernetes.io/part-of: herd
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
{{- with merge (dict) ($root.Values.commonLabels | default dict) ($root.Values.global.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (list $ component): of every object; an empty component for what belongs to all of them. */}}
{{- define "herd.labels" -}}
{{- $root := index . 0 -}}
{{ include "herd.podLabels" . }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "herd.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "herd.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* (list $ image): REGISTRY/REPOSITORY@DIGEST or :TAG. */}}
{{- define "herd.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := $image.repository -}}
{{- with $image.registry | default $root.Values.image.registry | default $root.Values.global.imageRegistry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" .) $name -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default $root.Values.image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Names of Secrets that log in to the registry: the chart's own, and those of a chart that this one is part of. As in a pod. */}}
{{- define "herd.pullSecrets" -}}
{{- with concat (.Values.image.pullSecrets | default list) (.Values.global.imagePullSecrets | default list) | uniq -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* (list $ which own): a pod's priority class; which: serving or actor. */}}
{{- define "herd.priorityClassName" -}}
{{- $root := index . 0 -}}
{{- if index . 2 -}}
{{- index . 2 -}}
{{- else if $root.Values.priorityClasses.create -}}
{{- include "herd.priorityClass" (list $root (index . 1)) -}}
{{- end -}}
{{- end -}}

{{/* (list $ which): classes are the cluster's, so their names say whose they are. */}}
{{- define "herd.priorityClass" -}}
{{- $root := index . 0 -}}
{{- printf "%s-%s-%s" $root.Release.Namespace (include "herd.fullname" $root) (index . 1) -}}
{{- end -}}
