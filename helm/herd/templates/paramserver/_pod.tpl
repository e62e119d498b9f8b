{{/* (list $ upstream): arguments of a replica, or of the root if upstream is "null". */}}
{{- define "herd.paramserver.args" -}}
- --paramserver.upstream={{ index . 1 }}
- --paramserver.host=*
- --paramserver.port=7200
- --paramserver.metrics_host=*
- --paramserver.metrics_port=9400
{{- end -}}

{{/* The pod of the root or of a replica, from a dict of root, component, values, upstream and roles. */}}
{{- define "herd.paramserver.pod" -}}
{{- include "herd.podTemplate" (merge . (dict
      "service" "paramserver"
      "args" (include "herd.paramserver.args" (list .root .upstream) | fromYamlArray)
      "env" (list (dict "name" "HOME" "value" "/tmp") (dict "name" "OMP_NUM_THREADS" "value" "1"))
      "ports" (dict "weights" 7200)
      "run" (dict "emptyDir" (dict "sizeLimit" "64Mi"))
      "priority" "serving"
      "probes" (dict "startSeconds" 120 "readiness" "/readyz" "livenessFailures" 3)
    )) -}}
{{- end -}}
