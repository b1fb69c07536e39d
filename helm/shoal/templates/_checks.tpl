{{/* What an upgrade may not change, by comparing with what runs: before anything is sent. It needs Helm with a cluster
(`helm upgrade`); where manifests are rendered without one (GitOps), the hook in create.yaml is what is left. */}}

{{/* The slices' StatefulSet as it is, as JSON; an empty object where there is none, or no cluster to ask. */}}
{{- define "shoal.livingSlices" -}}
{{- lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-slice" (include "shoal.name" .)) | toJson -}}
{{- end -}}

{{/* What the StatefulSet says of itself, for the comparison. */}}
{{- define "shoal.saidOfSlices" -}}
shoal/cluster: {{ .Values.cluster.name | quote }}
shoal/slices: {{ .Values.slices.count | toString | quote }}
{{- end -}}

{{/* Bytes of a quantity: 20Gi, 1.5Ti, 500G. */}}
{{- define "shoal.bytes" -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $unit := regexFind "[A-Za-z]*$" . -}}
{{- mulf (trimSuffix $unit . | float64) (get $factors $unit) | int64 -}}
{{- end -}}

{{- define "shoal.refuseChanges" -}}
{{- $held := include "shoal.livingSlices" . | fromJson -}}
{{- if and .Values.cluster.checkBeforeUpgrade $held.spec -}}
{{- $said := default dict $held.metadata.annotations -}}
{{- $name := get $said "shoal/cluster" -}}
{{- if and $name (ne $name .Values.cluster.name) -}}
{{- fail (printf "cluster.name: these slices are of the cluster %q, not %q. Under another name empty slices would begin beside their data, and clients would be led to both. Nothing was changed" $name .Values.cluster.name) -}}
{{- end -}}
{{- $count := get $said "shoal/slices" -}}
{{- if and $count (ne $count (toString .Values.slices.count)) -}}
{{- fail (printf "slices.count: this cluster has %s slices, not %d: partitions cannot move yet, so none can come or go. Nothing was changed" $count (int .Values.slices.count)) -}}
{{- end -}}
{{- $claim := (first $held.spec.volumeClaimTemplates).spec -}}
{{- $wanted := .Values.slices.persistence -}}
{{- $size := $claim.resources.requests.storage -}}
{{- $guide := "Kubernetes does not change the claims of a StatefulSet. Nothing was changed; docs/kubernetes.md, \"Grow a volume\", says how" -}}
{{- if ne (include "shoal.bytes" $size) (include "shoal.bytes" $wanted.size) -}}
{{- fail (printf "slices.persistence.size: the slices' claims are made for %s, not %s. %s" $size $wanted.size $guide) -}}
{{- end -}}
{{- if and $wanted.storageClass (ne $wanted.storageClass (default "" $claim.storageClassName)) -}}
{{- fail (printf "slices.persistence.storageClass: the slices' claims are of the class %q, not %q. %s" (default "" $claim.storageClassName) $wanted.storageClass $guide) -}}
{{- end -}}
{{- if ne (first $claim.accessModes) $wanted.accessMode -}}
{{- fail (printf "slices.persistence.accessMode: the slices' claims are %s, not %s. %s" (first $claim.accessModes) $wanted.accessMode $guide) -}}
{{- end -}}
{{- end -}}
{{- end -}}
