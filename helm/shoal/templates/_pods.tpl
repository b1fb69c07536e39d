{{/* What pods have in common: metadata, security, placement, resources, probes, the way to etcd. */}}

{{/* Of a Deployment or StatefulSet itself. Takes (dict "root" $ "component" NAME "annotations" MORE). */}}
{{- define "shoal.workloadMetadata" -}}
labels:
  {{- include "shoal.labels" . | nindent 2 }}
{{- with merge (deepCopy (default dict .root.Values.pods.workloadAnnotations)) (default dict .annotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Takes (dict "root" $ "component" NAME). */}}
{{- define "shoal.podMetadata" -}}
labels:
  {{- include "shoal.selector" . | nindent 2 }}
  {{- with .root.Values.pods.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.pods.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The Pod Security Standard "restricted". */}}
{{- define "shoal.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.pods.userId }}
  runAsGroup: {{ .Values.pods.userId }}
  fsGroup: {{ .Values.pods.userId }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.pods.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "shoal.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Takes a role's values. */}}
{{- define "shoal.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Takes (dict "root" $ "component" NAME "spread" LIST). */}}
{{- define "shoal.spread" -}}
{{- $this := . -}}
{{- with .spread }}
topologySpreadConstraints:
  {{- range . }}
  - maxSkew: 1
    topologyKey: {{ .topologyKey }}
    whenUnsatisfiable: {{ .whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "shoal.selector" $this | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A role's resources, with the one number of its memory as the limit: its process is told the same number. Takes (dict
"name" NAME "values" VALUES). */}}
{{- define "shoal.resources" -}}
{{- $name := .name -}}
{{- with .values -}}
{{- if hasKey (default dict .resources.limits) "memory" -}}
{{- fail (printf "%s.resources.limits.memory: say %s.memoryMiB instead, one number for the pod and for its process" $name $name) -}}
{{- end -}}
{{- $resources := deepCopy (default dict .resources) -}}
{{- $limits := merge (dict "memory" (printf "%dMi" (int .memoryMiB))) (default dict $resources.limits) -}}
{{- toYaml (set $resources "limits" $limits) -}}
{{- end -}}
{{- end -}}

{{/* All our servers answer /readyz and /healthz. A server that waits for another one, or refuses changes, is not ready,
but has started: to end it would help nothing. So "started" is a path that says only that the start is over. Takes
(dict "port" NAME "started" PATH "startSeconds" N). */}}
{{- define "shoal.probes" -}}
startupProbe:
  httpGet: {path: {{ .started }}, port: {{ .port }}}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: {{ div (add .startSeconds 1) 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}}
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: {{ .port }}}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
{{- end -}}

{{/* Items of `args`. */}}
{{- define "shoal.etcdArguments" -}}
- --cluster={{ .Values.cluster.name }}
- --etcd={{ include "shoal.etcdEndpoints" . }}
{{- if not .Values.etcd.builtIn.enabled }}
{{- with .Values.etcd.external }}
{{- if .tls.existingSecret }}
- --etcd-ca=/etc/shoal/etcd/ca.crt
{{- if .tls.clientCertificate }}
- --etcd-certificate=/etc/shoal/etcd/tls.crt
- --etcd-key=/etc/shoal/etcd/tls.key
{{- end }}
{{- end }}
{{- if .user.name }}
- --etcd-user={{ .user.name }}
- --etcd-password-file=/etc/shoal/etcd-login/password
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Items of `volumeMounts`: a place for temporary files, and etcd's certificates and password. As files: they are read
again when the Secret changes. */}}
{{- define "shoal.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if include "shoal.etcdTls" . }}
- name: etcd-tls
  mountPath: /etc/shoal/etcd
  readOnly: true
{{- end }}
{{- if include "shoal.etcdLogin" . }}
- name: etcd-login
  mountPath: /etc/shoal/etcd-login
  readOnly: true
{{- end }}
{{- end -}}

{{/* Items of `volumes`, for shoal.mounts. */}}
{{- define "shoal.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- if include "shoal.etcdTls" . }}
- name: etcd-tls
  secret: {secretName: {{ .Values.etcd.external.tls.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- if include "shoal.etcdLogin" . }}
{{- with .Values.etcd.external.user }}
- name: etcd-login
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: password}]
{{- end }}
{{- end }}
{{- end -}}

{{- define "shoal.etcdTls" -}}
{{- if and (not .Values.etcd.builtIn.enabled) .Values.etcd.external.tls.existingSecret -}}yes{{- end -}}
{{- end -}}

{{- define "shoal.etcdLogin" -}}
{{- if and (not .Values.etcd.builtIn.enabled) .Values.etcd.external.user.name -}}yes{{- end -}}
{{- end -}}
