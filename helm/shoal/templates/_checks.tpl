{{/* What is refused before anything is sent: values that contradict each other, and what an upgrade may not change. The
second compares with what runs, and needs Helm with a cluster (`helm upgrade`); where manifests are rendered without one
(GitOps), the hook in create.yaml is what is left. */}}

{{/* The slices' StatefulSet as it is, as JSON; an empty object where there is none, or no cluster to ask. */}}
{{- define "shoal.livingSlices" -}}
{{- lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-slice" (include "shoal.name" .)) | toJson -}}
{{- end -}}

{{/* What the StatefulSet says of itself, for the comparison. */}}
{{- define "shoal.saidOfSlices" -}}
shoal/cluster: {{ .Values.cluster.name | quote }}
shoal/slices: {{ .Values.slices.count | toString | quote }}
{{- end -}}

{{/* Thousandths of a quantity, to compare it with another one as float64: 20Gi, 1.5Ti, 500G, 500m, 1e9. */}}
{{- define "shoal.thousandths" -}}
{{- $factors := dict "n" 0.000001 "u" 0.001 "m" 1 "" 1000 "k" 1e6 "M" 1e9 "G" 1e12 "T" 1e15 "P" 1e18 "E" 1e21 "Ki" 1024000 "Mi" 1048576000 "Gi" 1073741824000 "Ti" 1099511627776000 "Pi" 1125899906842624000 "Ei" 1152921504606846976e3 -}}
{{- $unit := regexFind "[A-Za-z]*$" . -}}
{{- mulf (trimSuffix $unit . | float64) (get $factors $unit) | printf "%.6f" -}}
{{- end -}}

{{/* A quantity as it was written; YAML may have made a number of it. */}}
{{- define "shoal.quantity" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* Takes (dict "name" NAME "resources" VALUES "memory" NAME "memoryMiB" N): the last two where the limit of memory is a
value of its own. */}}
{{- define "shoal.refuseRequests" -}}
{{- $limits := default dict .resources.limits -}}
{{- if .memory -}}
{{- $limits = merge (dict "memory" (printf "%dMi" (int .memoryMiB))) $limits -}}
{{- end -}}
{{- range $what, $value := default dict .resources.requests -}}
{{- if hasKey $limits $what -}}
{{- $asked := include "shoal.quantity" $value -}}
{{- $most := include "shoal.quantity" (get $limits $what) -}}
{{- if gt (include "shoal.thousandths" $asked | float64) (include "shoal.thousandths" $most | float64) -}}
{{- $which := "" -}}
{{- if and $.memory (eq $what "memory") -}}
{{- $which = printf ", which is %s" $.memory -}}
{{- end -}}
{{- fail (printf "%s.requests.%s is %s, above its limit of %s%s: Kubernetes would make no pod" $.name $what $asked $most $which) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "shoal.refuseContradictions" -}}
{{- $slices := .Values.slices -}}
{{- if gt (int $slices.count) (int .Values.cluster.partitions) -}}
{{- fail (printf "slices.count is %d and cluster.partitions %d: each slice needs a partition" (int $slices.count) (int .Values.cluster.partitions)) -}}
{{- end -}}
{{- /* Two segments of a journal, one made ahead, take 128 MiB; the segments that a checkpoint waits for, the store and the file system the rest. */ -}}
{{- if lt (include "shoal.thousandths" $slices.persistence.size | float64) (include "shoal.thousandths" "1Gi" | float64) -}}
{{- fail (printf "slices.persistence.size is %s; it needs 1Gi or more: segments of the journal take 64 MiB each, and the store needs room beside them" $slices.persistence.size) -}}
{{- end -}}
{{- range $name := list "slices" "redirector" -}}
{{- $role := get $.Values $name -}}
{{- include "shoal.refuseRequests" (dict "name" (printf "%s.resources" $name) "resources" $role.resources "memory" (printf "%s.memoryMiB" $name) "memoryMiB" $role.memoryMiB) -}}
{{- end -}}
{{- if .Values.admin.enabled -}}
{{- include "shoal.refuseRequests" (dict "name" "admin.resources" "resources" .Values.admin.resources) -}}
{{- end -}}
{{- if .Values.etcd.builtIn.enabled -}}
{{- include "shoal.refuseRequests" (dict "name" "etcd.builtIn.resources" "resources" .Values.etcd.builtIn.resources) -}}
{{- end -}}
{{- if .Values.census.enabled -}}
{{- include "shoal.refuseRequests" (dict "name" "census.resources" "resources" .Values.census.resources) -}}
{{- end -}}
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
{{- if ne (include "shoal.thousandths" $size) (include "shoal.thousandths" $wanted.size) -}}
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
