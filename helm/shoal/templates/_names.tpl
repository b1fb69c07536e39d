{{/* Names, labels, addresses. What pods are made of is in _pods.tpl. */}}

{{/* Prefix of all names. 40 characters at most: with a component's name and an ordinal it stays a DNS label. */}}
{{- define "shoal.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What selectors match by: never changes. Takes (dict "root" $ "component" NAME). */}}
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

{{- define "shoal.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* With Java. A digest names one image only, so it does not count here. */}}
{{- define "shoal.sparkImage" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{ .Values.image.repository }}:{{ default (printf "%s-spark" $tag) .Values.census.tag }}
{{- end -}}

{{/* s0,s1,... in the order of ordinals. */}}
{{- define "shoal.slices" -}}
{{- $names := list -}}
{{- range $ordinal := until (int .Values.slices.count) -}}
{{- $names = append $names (printf "s%d" $ordinal) -}}
{{- end -}}
{{- join "," $names -}}
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
