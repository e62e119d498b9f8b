{{/*
A StatefulSet, from a dict of
  root, component, values, replicas; pod: what herd.podTemplate takes in addition
  persistence, if it writes files; name and own (dict of labels), where the component has several StatefulSets
*/}}
{{- define "herd.statefulSet" -}}
{{- $name := printf "%s-%s" (include "herd.fullname" .root) .component -}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .name | default $name }}
  {{- include "herd.workloadMetadata" . | nindent 2 }}
spec:
  serviceName: {{ $name }}
  replicas: {{ .replicas }}
  # With OrderedReady, a pod that cannot start would block even a rollback, and no shard can train before all are there.
  podManagementPolicy: Parallel
  revisionHistoryLimit: 3
  updateStrategy:
    type: RollingUpdate
  {{- include "herd.podSelectorAndTemplate" . | nindent 2 }}
  {{- with .persistence }}
  {{- include "herd.claimTemplates" (list $.root $.component .) | nindent 2 }}
  {{- end }}
{{ end -}}

{{/* As above: namespace and labels of a Deployment or StatefulSet. */}}
{{- define "herd.workloadMetadata" -}}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "herd.labels" (list .root .component) | nindent 2 }}
  {{- with merge (dict) (.own | default dict) (.values.workloadLabels | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* As above: the pods of a Deployment or StatefulSet. */}}
{{- define "herd.podSelectorAndTemplate" -}}
{{- $own := .own | default dict -}}
{{- $labels := merge (dict) (.values.labels | default dict) $own -}}
selector:
  matchLabels:
    {{- include "herd.selectorLabels" (list .root .component) | nindent 4 }}
    {{- with $own }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
template:
  {{- $values := set (deepCopy .values) "labels" $labels }}
  {{- include "herd.podTemplate" (merge (dict "root" .root "component" .component "values" $values) .pod) | nindent 2 }}
{{- end -}}
