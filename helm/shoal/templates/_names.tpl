{{/* Names, labels, addresses. What pods are made of is in _pods.tpl. */}}

{{/* Prefix of all names. 40 characters at most: with a component's name and an ordinal it stays a DNS label. A release's
name may have dots, which a Service's may not. */}}
{{- define "shoal.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $whole := .Values.fullnameOverride -}}
{{- if not $whole -}}
{{- $whole = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- $whole | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* What selectors match by: never changes. Pods have these labels and no others of the chart's: a release of the chart
alone must not restart them. Takes (dict "root" $ "component" NAME). */}}
{{- define "shoal.selector" -}}
app.kubernetes.io/name: shoal
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object. Takes (dict "root" $ "component" NAME). */}}
{{- define "shoal.labels" -}}
{{ include "shoal.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* Takes (dict "repository" R "tag" T "digest" D). */}}
{{- define "shoal.imageOf" -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag }}
{{- end -}}
{{- end -}}

{{- define "shoal.tag" -}}
{{- default .Chart.AppVersion .Values.image.tag -}}
{{- end -}}

{{- define "shoal.image" -}}
{{- include "shoal.imageOf" (dict "repository" .Values.image.repository "tag" (include "shoal.tag" .) "digest" .Values.image.digest) -}}
{{- end -}}

{{/* The variant with Java: another image, so another digest. */}}
{{- define "shoal.sparkImage" -}}
{{- $tag := default (printf "%s-spark" (include "shoal.tag" .)) .Values.census.tag -}}
{{- include "shoal.imageOf" (dict "repository" .Values.image.repository "tag" $tag "digest" .Values.census.digest) -}}
{{- end -}}

{{/* s0,s1,... in the order of ordinals. */}}
{{- define "shoal.slices" -}}
{{- $names := list -}}
{{- range $ordinal := until (int .Values.slices.count) -}}
{{- $names = append $names (printf "s%d" $ordinal) -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{/* Every interface. */}}
{{- define "shoal.any" -}}
{{- ternary "[::]" "0.0.0.0" (eq .Values.ipFamily "IPv6") -}}
{{- end -}}

{{/* The pod's own address, of the variable POD_IP. */}}
{{- define "shoal.podAddress" -}}
{{- ternary "[$(POD_IP)]" "$(POD_IP)" (eq .Values.ipFamily "IPv6") -}}
{{- end -}}

{{- define "shoal.redirectorAddress" -}}
{{ include "shoal.name" . }}-redirector.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:7400
{{- end -}}

{{- define "shoal.etcdEndpoints" -}}
{{- if .Values.etcd.builtIn.enabled -}}
{{ include "shoal.name" . }}-etcd.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:2379
{{- else -}}
{{- join "," .Values.etcd.external.endpoints -}}
{{- end -}}
{{- end -}}

{{- define "shoal.tokenSecret" -}}
{{- default (printf "%s-admin-token" (include "shoal.name" .)) .Values.admin.token.existingSecret -}}
{{- end -}}

{{- define "shoal.archiveClaim" -}}
{{- default (printf "%s-archive" (include "shoal.name" .)) .Values.archive.existingClaim -}}
{{- end -}}

{{- define "shoal.censusClaim" -}}
{{- default (printf "%s-census" (include "shoal.name" .)) .Values.census.existingClaim -}}
{{- end -}}
