{{/* What pods have in common: metadata, security, placement, probes, the way to etcd. */}}

{{/* Takes (dict "root" $ "component" NAME). */}}
{{- define "shoal.podMetadata" -}}
labels:
  {{- include "shoal.labels" . | nindent 2 }}
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

{{/* Takes (dict "root" $ "component" NAME "spread" VALUES). */}}
{{- define "shoal.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ .spread.topologyKey }}
    whenUnsatisfiable: {{ .spread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "shoal.selector" . | nindent 8 }}
{{- end -}}

{{/* All our servers have these two paths on the port named http. Takes the seconds that a start may take. */}}
{{- define "shoal.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: {{ div (add . 1) 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: http}
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
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Items of `env`; nothing without a login. */}}
{{- define "shoal.etcdEnvironment" -}}
{{- if not .Values.etcd.builtIn.enabled }}
{{- with .Values.etcd.external.user }}
{{- if .name }}
- name: SHOAL_ETCD_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret }}, key: {{ .key }}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Items of `volumeMounts`: a place for temporary files, and etcd's certificates. */}}
{{- define "shoal.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if include "shoal.etcdTls" . }}
- name: etcd-tls
  mountPath: /etc/shoal/etcd
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
{{- end -}}

{{- define "shoal.etcdTls" -}}
{{- if and (not .Values.etcd.builtIn.enabled) .Values.etcd.external.tls.existingSecret -}}yes{{- end -}}
{{- end -}}
