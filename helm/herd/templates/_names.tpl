{{/* Names and labels. */}}

{{/*
The release's name if it contains herd, else RELEASE-herd. It has at most 32 characters: the longest object is FULLNAME-paramserver-replica,
and with more than 52 characters in a StatefulSet's name, its pods' revision label is too long. A longer name is cut, and gets a digest.
*/}}
{{- define "herd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := .Chart.Name -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- if gt (len $full) 32 -}}
{{- printf "%s-%s" ($full | trunc 25 | trimSuffix "-") ($full | sha256sum | trunc 6) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list $ component): labels that never change. */}}
{{- define "herd.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* (list $ component): labels of pods. They do not contain the chart's version, because a new chart alone should not replace pods. */}}
{{- define "herd.podLabels" -}}
{{- $root := index . 0 -}}
{{ include "herd.selectorLabels" . }}
app.kubernetes.io/part-of: herd
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (list $ component): labels of an object. The component is empty for objects that all components share. */}}
{{- define "herd.labels" -}}
{{- $root := index . 0 -}}
{{ include "herd.podLabels" . }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The section of values.yaml of a component. */}}
{{- define "herd.section" -}}
{{- . | replace "-replica" "Replica" -}}
{{- end -}}

{{/* (list $ key): a component's values over `defaults`, as JSON. */}}
{{- define "herd.component" -}}
{{- $values := (index . 0).Values -}}
{{- include "herd.over" (list $values.defaults (index $values (index . 1))) -}}
{{- end -}}

{{/* (list base own): own over base, as JSON: maps by key, everything else as a whole. Helm's own merge would skip false and 0. */}}
{{- define "herd.over" -}}
{{- $merged := deepCopy (index . 0) -}}
{{- range $key, $own := index . 1 -}}
{{- $base := index $merged $key -}}
{{- $both := and (kindIs "map" $base) (kindIs "map" $own) -}}
{{- $_ := set $merged $key ($both | ternary (include "herd.over" (list ($both | ternary $base dict) ($both | ternary $own dict)) | fromJson) $own) -}}
{{- end -}}
{{- $merged | toJson -}}
{{- end -}}

{{- define "herd.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "herd.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* (list $ service image): REGISTRY/REPOSITORY@DIGEST or :TAG. */}}
{{- define "herd.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 2 -}}
{{- $name := $image.repository | default (printf "herd-%s" (index . 1)) -}}
{{- with $image.registry | default $root.Values.image.registry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" .) $name -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default $root.Values.image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The imagePullSecrets of a pod. */}}
{{- define "herd.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end -}}
{{- end -}}
