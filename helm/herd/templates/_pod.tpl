{{/*
The pod of a component, from a dict of
  root, component, values; args (list); command (list), if it is not the image's
  ports: dict of name and number, without metrics, if there are others than those of herd.ports
  env: list, by default for a process with one thread; volumes, mounts: lists
  run: the volume at /var/lib/herd, by default small and empty; empty if a claim template creates it
  tolerations: list; roles: list of client and server, for its CURVE keys; limits: dict, added to resources.limits
  startSeconds, readiness (path) and livenessFailures of its probes, where they differ
*/}}
{{- define "herd.podTemplate" -}}
{{- $template := include "herd.ownPodTemplate" . | fromYaml -}}
{{- $spec := include "herd.patchedPod" (list .root $template.spec .values.pod) | fromJson -}}
{{- set $template "spec" $spec | toYaml -}}
{{- end -}}

{{/* (list $ spec patch): a pod's spec with the user's fields merged over it, as JSON. Added containers get our securityContext too. */}}
{{- define "herd.patchedPod" -}}
{{- $secure := (index . 0).Values.containerSecurityContext -}}
{{- $spec := (include "herd.patched" (list (index . 1) (index . 2 | default dict)) | fromJson).value -}}
{{- range concat $spec.containers ($spec.initContainers | default list) -}}
{{- if not (hasKey . "securityContext") -}}
{{- $_ := set . "securityContext" $secure -}}
{{- end -}}
{{- end -}}
{{- $spec | toJson -}}
{{- end -}}

{{/*
(list base patch): the merged value, as JSON of {value: ...}. Maps are merged by key, and null removes a key. Lists whose items all have a
mountPath or name are merged by it. Everything else is replaced.
*/}}
{{- define "herd.patched" -}}
{{- $base := index . 0 -}}
{{- $patch := index . 1 -}}
{{- $value := $patch -}}
{{- if and (kindIs "map" $base) (kindIs "map" $patch) -}}
{{- $value = deepCopy $base -}}
{{- range $key, $own := $patch -}}
{{- if kindIs "invalid" $own -}}
{{- $_ := unset $value $key -}}
{{- else -}}
{{- $_ := set $value $key (include "herd.patched" (list (index $base $key) $own) | fromJson).value -}}
{{- end -}}
{{- end -}}
{{- else if and (kindIs "slice" $base) (kindIs "slice" $patch) -}}
{{- range $identity := list "mountPath" "name" -}}
{{- if include "herd.allHave" (list $identity (concat $base $patch)) -}}
{{- $order := list -}}
{{- $byName := dict -}}
{{- range concat $base $patch -}}
{{- $name := index . $identity -}}
{{- $order = append $order $name | uniq -}}
{{- $_ := set $byName $name (include "herd.patched" (list (index $byName $name) .) | fromJson).value -}}
{{- end -}}
{{- $value = list -}}
{{- range $order -}}
{{- $value = append $value (index $byName .) -}}
{{- end -}}
{{- break -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "value" $value | toJson -}}
{{- end -}}

{{/* (list key items): "true" if every item is a map with that key; else empty. */}}
{{- define "herd.allHave" -}}
{{- $key := index . 0 -}}
{{- $all := "true" -}}
{{- range index . 1 -}}
{{- if not (and (kindIs "map" .) (hasKey . $key)) -}}
{{- $all = "" -}}
{{- end -}}
{{- end -}}
{{- $all -}}
{{- end -}}

{{- define "herd.ownPodTemplate" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $service := trimSuffix "-replica" .component -}}
{{- $oneThread := list (dict "name" "HOME" "value" "/tmp") (dict "name" "OMP_NUM_THREADS" "value" "1") -}}
metadata:
  labels:
    {{- include "herd.podLabels" (list $root .component) | nindent 4 }}
    {{- with $values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ $service }}
    checksum/experiment: {{ include "herd.checksum" (list $root .component) }}
    {{- if and $root.Values.monitoring.scrapeAnnotations (not $root.Values.monitoring.podMonitor.enabled) }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "9400"
    prometheus.io/path: /metrics
    {{- end }}
    {{- with $values.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "herd.serviceAccountName" $root }}
  automountServiceAccountToken: false
  # A Service named herd-learner would set HERD_LEARNER_PORT in every environment, which would be refused as an unknown setting.
  enableServiceLinks: false
  {{- with include "herd.pullSecrets" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with concat (.tolerations | default list) ($values.tolerations | default list) }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- $own := dict "labelSelector" (dict "matchLabels" (include "herd.selectorLabels" (list $root $.component) | fromYaml)) }}
    - {{ toYaml (merge (deepCopy .) $own) | nindent 6 | trim }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ $service }}
      image: {{ include "herd.image" (list $root $service $values.image) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      securityContext:
        {{- toYaml $root.Values.containerSecurityContext | nindent 8 }}
      {{- with .command }}
      command: {{ toJson . }}
      {{- end }}
      args:
        - --config=/etc/herd/experiment.yaml
        - {{ printf "--run_dir=%s" (include "herd.runDirectory" $root) | quote }}
        - --metrics=*:9400
        {{- range .args }}
        - {{ . | quote }}
        {{- end }}
        {{- with include "herd.curve.args" $root }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- range $values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      {{- with include "herd.env" (list (.env | default $oneThread) $values.env) | fromJsonArray }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- range $name, $port := .ports | default (include "herd.ports" (list $root .component) | fromJson) }}
        - name: {{ $name }}
          containerPort: {{ $port }}
          protocol: TCP
        {{- end }}
        - name: metrics
          containerPort: 9400
          protocol: TCP
      {{- include "herd.probes" . | nindent 6 }}
      {{- with merge (dict "limits" (.limits | default dict)) (deepCopy ($values.resources | default dict)) }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: experiment
          mountPath: /etc/herd
          readOnly: true
        - name: run
          mountPath: /var/lib/herd
        - name: tmp
          mountPath: /tmp
        {{- if $root.Values.security.curve.existingSecret }}
        - name: keys
          mountPath: /etc/herd-keys
          readOnly: true
        {{- end }}
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: experiment
      configMap:
        name: {{ include "herd.fullname" $root }}-experiment
    {{- with hasKey . "run" | ternary .run (dict "emptyDir" (dict "sizeLimit" "64Mi")) }}
    - name: run
      {{- toYaml . | nindent 6 }}
    {{- end }}
    - name: tmp
      emptyDir:
        sizeLimit: {{ .tmp | default "64Mi" }}
    {{- if $root.Values.security.curve.existingSecret }}
    - name: keys
      secret:
        secretName: {{ $root.Values.security.curve.existingSecret }}
        # Readable only by the pod's group.
        defaultMode: 0440
        items:
          {{- include "herd.curve.items" (list $root .roles) | trim | nindent 10 }}
    {{- end }}
    {{- with .volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/*
A gpu section: the tolerations of a pod with a GPU, as JSON. Nodes carry the taint VENDOR/gpu, even if the resource is a part of a GPU, such
as nvidia.com/mig-1g.10gb or nvidia.com/gpu.shared; some clusters name the taint after the resource.
*/}}
{{- define "herd.gpuTolerations" -}}
{{- $tolerations := list -}}
{{- if .enabled -}}
{{- range list (printf "%s/gpu" (splitList "/" .resourceName | first)) .resourceName | uniq -}}
{{- $tolerations = append $tolerations (dict "key" . "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- end -}}
{{- $tolerations | toJson -}}
{{- end -}}

{{/* Arguments for CURVE. The folder contains only the keys that this process needs (docs/messaging.md). */}}
{{- define "herd.curve.args" -}}
{{- with .Values.security.curve -}}
{{- if .existingSecret -}}
- --security.curve_keys=/etc/herd-keys
- --security.curve_client={{ .client }}
{{- else if include "herd.setting" (list $ "security" "curve_keys" "") -}}
{{- fail "experiment.security.curve_keys is a folder, which pods cannot read: put its keys into a Secret and name it in security.curve.existingSecret" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list $ roles): the files of the Secret that a pod with these roles needs. */}}
{{- define "herd.curve.items" -}}
{{- $curve := (index . 0).Values.security.curve -}}
{{- $files := list -}}
{{- if has "client" (index . 1) -}}
{{- $files = concat $files (list "server.public" (printf "client-%s.secret" $curve.client)) -}}
{{- end -}}
{{- if has "server" (index . 1) -}}
{{- $files = append $files "server.secret" -}}
{{- range $curve.clients -}}
{{- $files = append $files (printf "client-%s.public" .) -}}
{{- end -}}
{{- end -}}
{{- range $files }}
- key: {{ . }}
  path: {{ . }}
{{- end -}}
{{- end -}}

{{/* (list own given): environment variables, as JSON. Given ones replace our own of the same name, because the API refuses duplicates. */}}
{{- define "herd.env" -}}
{{- $fixed := list "RANK" "WORLD_SIZE" "MASTER_ADDR" "MASTER_PORT" "TORCHELASTIC_RUN_ID" "GROUP_RANK" "LOCAL_WORLD_SIZE" "HERD_INDEX" -}}
{{- $names := list -}}
{{- range index . 1 -}}
{{- if has .name $fixed -}}
{{- fail (printf "env: %s cannot be set: it is reserved for the chart" .name) -}}
{{- end -}}
{{- if has .name $names -}}
{{- fail (printf "env: %s is given twice" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $env := list -}}
{{- range index . 0 -}}
{{- if not (has .name $names) -}}
{{- $env = append $env . -}}
{{- end -}}
{{- end -}}
{{- concat $env (index . 1 | default list) | toJson -}}
{{- end -}}

{{/* The probes of a pod, from its dict. */}}
{{- define "herd.probes" -}}
# Before the first answer, a process may load PyTorch, or wait for an index or for other shards.
startupProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ div (int (.startSeconds | default 600)) 5 }}
# /healthz fails if the main loop has been blocked for 60 s, or for longer than an environment may take to load. Then only a restart helps.
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: {{ .livenessFailures | default 3 }}
readinessProbe:
  httpGet:
    path: {{ .readiness | default "/readyz" }}
    port: metrics
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{/* The volume of the run directory, from a dict of persistence and scratch; empty if a claim template creates it. */}}
{{- define "herd.runVolume" -}}
{{- if .persistence.existingClaim -}}
persistentVolumeClaim:
  claimName: {{ .persistence.existingClaim }}
{{- else if not .persistence.enabled -}}
emptyDir:
  sizeLimit: {{ .scratch }}
{{- end -}}
{{- end -}}

{{/* (list $ component persistence): claim templates of a StatefulSet, which cannot be changed, so their labels are constant. */}}
{{- define "herd.claimTemplates" -}}
{{- $persistence := index . 2 -}}
{{- if and $persistence.enabled (not $persistence.existingClaim) -}}
persistentVolumeClaimRetentionPolicy:
  whenDeleted: {{ $persistence.retention.whenDeleted }}
volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: run
      labels:
        {{- include "herd.selectorLabels" (list (index . 0) (index . 1)) | nindent 8 }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- if not (kindIs "invalid" $persistence.storageClass) }}
      storageClassName: {{ $persistence.storageClass | quote }}
      {{- end }}
      resources:
        requests:
          storage: {{ $persistence.size }}
{{- end -}}
{{- end -}}
