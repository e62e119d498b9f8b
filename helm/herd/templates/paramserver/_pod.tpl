{{/* The pod of the root or of a replica, from a dict of root, component, values, args and roles. */}}
{{- define "herd.paramserver.pod" -}}
{{- include "herd.podTemplate" (merge . (dict
      "service" "paramserver"
      "env" (list (dict "name" "HOME" "value" "/tmp") (dict "name" "OMP_NUM_THREADS" "value" "1"))
      "ports" (dict "weights" 7200)
      "run" (dict "emptyDir" (dict "sizeLimit" "64Mi"))
      "priority" "serving"
      "probes" (dict "startSeconds" 120 "readiness" "/readyz" "livenessFailures" 3)
    )) -}}
{{- end -}}
