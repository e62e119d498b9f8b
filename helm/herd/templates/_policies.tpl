{{/* (list $ component ingress egress): a component's policy, with two lists of rules. Its metrics port is always reachable. */}}
{{- define "herd.networkPolicy" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "herd.fullname" $root }}-{{ $component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "herd.labels" (list $root $component) | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "herd.selectorLabels" (list $root $component) | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    {{- with index . 2 }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    - ports:
        - {{ include "herd.policyPort" (list $root 9400 $component) }}
      {{- with $root.Values.networkPolicy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
        {{- range include "herd.has.runEnd" $root | empty | not | ternary (list "test" "run-end") (list "test") }}
        - podSelector:
            matchLabels:
              {{- include "herd.selectorLabels" (list $root .) | nindent 14 }}
        {{- end }}
      {{- end }}
  {{- with index . 3 }}
  egress:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* (list $ port component): a port of a policy, as JSON. Each shard in a learner's pod has a port of its own. */}}
{{- define "herd.policyPort" -}}
{{- $port := dict "port" (index . 1) "protocol" "TCP" -}}
{{- $more := sub ((index . 0).Values.learner.shardsPerPod | int) 1 -}}
{{- if and (eq (index . 2) "learner") (gt $more 0) -}}
{{- $_ := set $port "endPort" (add (index . 1) $more) -}}
{{- end -}}
{{- $port | toJson -}}
{{- end -}}

{{/* (list $ direction port components...): a rule, as JSON. Port 0 means all ports. */}}
{{- define "herd.rule" -}}
{{- $root := index . 0 -}}
{{- $peers := list -}}
{{- range slice . 3 -}}
{{- $peers = append $peers (dict "podSelector" (dict "matchLabels" (include "herd.selectorLabels" (list $root .) | fromYaml))) -}}
{{- end -}}
{{- $rule := dict (index . 1) $peers -}}
{{- with index . 2 -}}
{{- $_ := set $rule "ports" (list (include "herd.policyPort" (list $root . (has . (list 7100 9400) | ternary "learner" "")) | fromJson)) -}}
{{- end -}}
{{- $rule | toJson -}}
{{- end -}}

{{/* DNS is allowed to any address, because a node-local cache is not a pod that selectors match. OpenShift's DNS pods use port 5353. */}}
{{- define "herd.rule.dns" -}}
{{- $ports := list -}}
{{- range list 53 5353 -}}
{{- $ports = concat $ports (list (dict "port" . "protocol" "UDP") (dict "port" . "protocol" "TCP")) -}}
{{- end -}}
{{- dict "ports" $ports | toJson -}}
{{- end -}}
