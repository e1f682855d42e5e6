{{/*
What cannot work together is refused here, before anything reaches a cluster. Types and bounds of single values stand in
values.schema.json. Each message names the values and says what to do.
*/}}
{{- define "gristmill.checks" -}}
{{- include "gristmill.checkRedis" . }}
{{- include "gristmill.checkPostgres" . }}
{{- include "gristmill.checkConfig" . }}
{{- include "gristmill.checkServices" . }}
{{- $found := dict }}
{{- include "gristmill.roles" (list . $found) }}
{{- range $role := $found.roles }}
{{- include "gristmill.checkRole" $role }}
{{- end }}
{{- include "gristmill.checkQueues" $found.roles }}
{{- end }}

{{- define "gristmill.checkRedis" -}}
{{- with .Values.redis }}
{{- if and .url .existingSecret }}
{{- fail "redis.url and redis.existingSecret exclude each other: give one of them" }}
{{- else if not (or .url .existingSecret) }}
{{- fail "how is Redis reached? Give redis.existingSecret (a Secret with the URL), or redis.url" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gristmill.checkPostgres" -}}
{{- $relay := .Values.relay.enabled }}
{{- with .Values.postgres }}
{{- if and .url .existingSecret }}
{{- fail "postgres.url and postgres.existingSecret exclude each other: give one of them" }}
{{- end }}
{{- $reached := or .url .existingSecret }}
{{- if and .relay $relay }}
{{- fail "postgres.relay and relay.enabled exclude each other: the outbox is relayed by the workers, or by pods of its own" }}
{{- else if and .relay (not $reached) }}
{{- fail "postgres.relay needs postgres.existingSecret or postgres.url" }}
{{- else if and $relay (not $reached) }}
{{- fail "relay.enabled needs postgres.existingSecret or postgres.url" }}
{{- else if and .migrate.enabled (not $reached) (not .migrate.existingSecret) }}
{{- fail "postgres.migrate.enabled needs postgres.migrate.existingSecret, postgres.existingSecret or postgres.url" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Settings that the chart computes, and the values they are computed from. */}}
{{- define "gristmill.owned" -}}
queues: workers.<pool>.queues
redis.url: redis.url
redis.url_file: redis.existingSecret
redis.password_file: redis.passwordSecret
redis.ca_file: redis.tls.caSecret
node.name: the name of the pod
node.slots: workers.<pool>.slots
drain.window_ms: drain.windowSeconds
drain.grace_ms: drain.graceSeconds
health.listen: health.port
postgres.url: postgres.url
postgres.url_file: postgres.existingSecret
postgres.relay: postgres.relay
ingest.listen: ingest.port
ingest.tokens_file: ingest.tokensSecret
telemetry.traces: tracing.enabled
telemetry.traces_keep: tracing.keep
telemetry.slow_ms: tracing.slowMs
telemetry.metrics_otlp: metrics.otlp
log.level: log.level
log.format: log.format
{{- end }}

{{/* (list WHERE CONFIG) */}}
{{- define "gristmill.checkOwned" -}}
{{- $where := index . 0 }}
{{- $config := index . 1 }}
{{- range $setting, $value := include "gristmill.owned" . | fromYaml }}
{{- $path := splitList "." $setting }}
{{- $at := $config }}
{{- range $path }}{{- $at = ternary (index (default dict $at) .) nil (kindIs "map" $at) }}{{- end }}
{{- if not (kindIs "invalid" $at) }}
{{- fail (printf "%s.%s is set by the chart, from: %s" $where $setting $value) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gristmill.checkConfig" -}}
{{- include "gristmill.checkOwned" (list "config" .Values.config) }}
{{- include "gristmill.checkOwned" (list "worker.config" .Values.worker.config) }}
{{- range $pool, $values := .Values.workers }}
{{- include "gristmill.checkOwned" (list (printf "workers.%s.config" $pool) (default dict (default dict $values).config)) }}
{{- end }}
{{- if .Values.existingConfigMap }}
{{- if .Values.config }}
{{- fail "existingConfigMap and config exclude each other: the settings lie in one place" }}
{{- end }}
{{- $own := .Values.worker.config }}
{{- range .Values.workers }}{{- $own = or $own (default dict .).config }}{{- end }}
{{- if $own }}
{{- fail "existingConfigMap and workers.<pool>.config exclude each other: with a ConfigMap of yours, pools have no settings of their own" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gristmill.checkServices" -}}
{{- $all := .Values }}
{{- if and $all.ingest.enabled (not $all.ingest.tokensSecret) }}
{{- fail "ingest.enabled needs ingest.tokensSecret: beyond its own machine the server takes no jobs from who has no token" }}
{{- end }}
{{- if and $all.ingest.enabled (eq (int $all.ingest.port) (int $all.health.port)) }}
{{- fail (printf "ingest.port and health.port are both %d: they are two servers" (int $all.health.port)) }}
{{- end }}
{{- if and $all.ingest.ingress.enabled (not $all.ingest.enabled) }}
{{- fail "ingest.ingress.enabled needs ingest.enabled" }}
{{- else if and $all.ingest.ingress.enabled (not $all.ingest.ingress.host) }}
{{- fail "ingest.ingress.enabled needs ingest.ingress.host" }}
{{- end }}
{{- if and $all.metrics.serviceMonitor.enabled (not $all.monitor.enabled) }}
{{- fail "metrics.serviceMonitor.enabled needs monitor.enabled: it is the monitor that it scrapes" }}
{{- end }}
{{- if and $all.tracing.enabled (not $all.tracing.endpoint) }}
{{- fail "tracing.enabled needs tracing.endpoint, such as http://jaeger-collector:4317" }}
{{- else if and $all.metrics.otlp (not $all.tracing.endpoint) }}
{{- fail "metrics.otlp needs tracing.endpoint, such as http://collector:4317" }}
{{- end }}
{{- end }}

{{/* How messages name a role's values. */}}
{{- define "gristmill.where" -}}
{{- if .pool }}workers.{{ .pool }}{{ else }}{{ .component }}{{ end }}
{{- end }}

{{- define "gristmill.checkRole" -}}
{{- $values := .values }}
{{- $where := include "gristmill.where" . }}
{{- include "gristmill.checkGrace" . }}
{{- include "gristmill.checkRollout" . }}
{{- include "gristmill.checkScaling" . }}
{{- if eq .component "worker" }}
{{- include "gristmill.checkLease" . }}
{{- end }}
{{- $chart := list }}
{{- $bare := omit . "values" }}
{{- $_ := set $bare "values" (merge (dict "pod" dict) (omit $values "pod")) }}
{{- range include "gristmill.env" $bare | fromYamlArray }}{{- $chart = append $chart .name }}{{- end }}
{{- range $values.pod.extraEnv }}
{{- if has .name $chart }}
{{- fail (printf "%s: pod.extraEnv must not hold %s: the chart sets it from other values" $where .name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* (list ROLE VALUE ASKED) */}}
{{- define "gristmill.refuseGrace" -}}
{{- $role := index . 0 }}
{{- $drain := $role.values.drain }}
{{- fail (printf "%s: %s is %d, and the drain needs %d: preStop %d + windowSeconds %d + graceSeconds %d + marginSeconds %d. Kubernetes would kill pods that still hand back their jobs: shorten drain.windowSeconds, or leave the grace period to the chart"
  (include "gristmill.where" $role) (index . 1) (index . 2) $role.needed $role.preStop (int $drain.windowSeconds) (int $drain.graceSeconds) (int $drain.marginSeconds)) }}
{{- end }}

{{- define "gristmill.checkGrace" -}}
{{- $asked := int .values.drain.terminationGracePeriodSeconds }}
{{- if and (gt $asked 0) (lt $asked .needed) }}
{{- include "gristmill.refuseGrace" (list . "drain.terminationGracePeriodSeconds" $asked) }}
{{- end }}
{{- end }}

{{- define "gristmill.checkRollout" -}}
{{- $where := include "gristmill.where" . }}
{{- with .values }}
{{- if hasKey . "maxSurge" }}
{{- $none := list "0" "0%" }}
{{- if and (has (toString .maxSurge) $none) (has (toString .maxUnavailable) $none) }}
{{- fail (printf "%s: maxSurge and maxUnavailable are both 0: no pod could ever be replaced" $where) }}
{{- end }}
{{- $start := mul (int .probes.startup.periodSeconds) (int .probes.startup.failureThreshold) }}
{{- $least := add $start (int .minReadySeconds) }}
{{- if le (int .progressDeadlineSeconds) (int $least) }}
{{- fail (printf "%s: progressDeadlineSeconds is %d: it must be more than %d, the time a pod may take to start (%d) and minReadySeconds (%d), or a slow rollout counts as failed" $where (int .progressDeadlineSeconds) $least $start (int .minReadySeconds)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gristmill.checkScaling" -}}
{{- $where := include "gristmill.where" . }}
{{- $hpa := default dict .values.hpa }}
{{- $keda := default dict .values.keda }}
{{- /* Kubernetes allows 3600 s at most. */}}
{{- $window := min 3600 (int .values.drain.windowSeconds) | int }}
{{- if and $hpa.enabled $keda.enabled }}
{{- fail (printf "%s: hpa.enabled and keda.enabled exclude each other: KEDA makes an autoscaler of its own" $where) }}
{{- end }}
{{- if and $keda.enabled (not .root.Values.monitor.enabled) }}
{{- fail (printf "%s: keda.enabled needs monitor.enabled: it is the monitor that KEDA asks for the number of jobs" $where) }}
{{- end }}
{{- range $name, $scaler := dict "hpa" $hpa "keda" $keda }}
{{- if $scaler.enabled }}
{{- if gt (int $scaler.minReplicas) (int $scaler.maxReplicas) }}
{{- fail (printf "%s: %s.minReplicas is %d and %s.maxReplicas is %d" $where $name (int $scaler.minReplicas) $name (int $scaler.maxReplicas)) }}
{{- end }}
{{- if lt (int $scaler.scaleDownStabilizationSeconds) $window }}
{{- fail (printf "%s: %s.scaleDownStabilizationSeconds is %d, less than drain.windowSeconds, %d: pods would be taken away while those before them still drain" $where $name (int $scaler.scaleDownStabilizationSeconds) $window) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $keda.enabled (gt (int $keda.fallbackReplicas) (int $keda.maxReplicas)) }}
{{- fail (printf "%s: keda.fallbackReplicas is %d and keda.maxReplicas is %d" $where (int $keda.fallbackReplicas) (int $keda.maxReplicas)) }}
{{- end }}
{{- if $hpa.enabled }}
{{- $processor := gt (int $hpa.targetCPUUtilizationPercentage) 0 }}
{{- if not (or $processor $hpa.metrics) }}
{{- fail (printf "%s: hpa.enabled needs hpa.targetCPUUtilizationPercentage or hpa.metrics" $where) }}
{{- end }}
{{- if and $processor (not (dig "requests" "cpu" "" .values.pod.resources)) }}
{{- fail (printf "%s: hpa.targetCPUUtilizationPercentage is a share of pod.resources.requests.cpu, which is missing" $where) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same relations that a node checks; here they are told before a pod fails by them. */}}
{{- define "gristmill.checkLease" -}}
{{- $where := include "gristmill.where" . }}
{{- $lease := default dict .values.config.lease }}
{{- $ttl := int (default 5000 $lease.ttl_ms) }}
{{- $renewal := int (default 1000 $lease.renewal_ms) }}
{{- $margin := int (default 1500 $lease.margin_ms) }}
{{- if gt (mul 3 $renewal) $ttl }}
{{- fail (printf "%s: config.lease.renewal_ms is %d: at most a third of config.lease.ttl_ms, %d, so that two renewals may fail" $where $renewal $ttl) }}
{{- end }}
{{- if or (lt $margin $renewal) (ge (add $margin $renewal) $ttl) }}
{{- fail (printf "%s: config.lease.margin_ms is %d: at least config.lease.renewal_ms, %d, and less than config.lease.ttl_ms - config.lease.renewal_ms, %d" $where $margin $renewal (sub $ttl $renewal)) }}
{{- end }}
{{- end }}

{{- define "gristmill.checkQueues" -}}
{{- $known := dict }}
{{- range $role := . }}
{{- if $role.pool }}
{{- $where := include "gristmill.where" $role }}
{{- if not $role.values.queues }}
{{- fail (printf "%s.queues: which queues does this pool serve? Such as [\"orders:64\"]; or switch it off with %s.enabled=false" $where $where) }}
{{- end }}
{{- $here := dict }}
{{- range $queue := $role.values.queues }}
{{- $name := splitList ":" $queue | first }}
{{- $partitions := contains ":" $queue | ternary (splitList ":" $queue | last) "64" }}
{{- if hasKey $here $name }}
{{- fail (printf "%s.queues names %s twice" $where $name) }}
{{- end }}
{{- $_ := set $here $name true }}
{{- $before := default $partitions (index $known $name) }}
{{- if ne $before $partitions }}
{{- fail (printf "%s.queues: %s has %s partitions here and %s in another pool" $where $name $partitions $before) }}
{{- end }}
{{- $_ := set $known $name $partitions }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
