{{/* The environment of a role's container, as a list. Whatever is computed comes this way, and wins over gristmill.toml. */}}
{{- define "gristmill.env" -}}
{{- $all := .root.Values }}
{{- $values := .values }}
- name: GRISTMILL__LOG__LEVEL
  value: {{ $all.log.level | quote }}
- name: GRISTMILL__LOG__FORMAT
  value: {{ $all.log.format | quote }}
{{- if .redis }}
- name: GRISTMILL__REDIS__URL_FILE
  value: /run/gristmill/redis/url
{{- if $all.redis.passwordSecret }}
- name: GRISTMILL__REDIS__PASSWORD_FILE
  value: /run/gristmill/redis-password/password
{{- end }}
{{- if $all.redis.tls.caSecret }}
- name: GRISTMILL__REDIS__CA_FILE
  value: /run/gristmill/redis-ca/ca.crt
{{- end }}
{{- end }}
{{- if .postgres }}
- name: GRISTMILL__POSTGRES__URL_FILE
  value: /run/gristmill/postgres/url
{{- if $all.postgres.tls.caSecret }}
- name: PGSSLROOTCERT
  value: /run/gristmill/postgres-ca/ca.crt
{{- end }}
{{- end }}
{{- if .serves }}
- name: GRISTMILL__HEALTH__LISTEN
  value: {{ printf "%s:%d" $all.listenAddress (int $all.health.port) | quote }}
- name: GRISTMILL__DRAIN__WINDOW_MS
  value: {{ mul 1000 (int $values.drain.windowSeconds) | quote }}
- name: GRISTMILL__DRAIN__GRACE_MS
  value: {{ mul 1000 (int $values.drain.graceSeconds) | quote }}
{{- end }}
{{- if eq .component "worker" }}
- name: GRISTMILL__QUEUES
  value: {{ join "," $values.queues | quote }}
# Not the host's name: that is cut off at 63 letters, where pods differ.
- name: GRISTMILL__NODE__NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: GRISTMILL__NODE__SLOTS
  value: {{ int $values.slots | quote }}
{{- if $all.postgres.relay }}
- name: GRISTMILL__POSTGRES__RELAY
  value: "true"
{{- end }}
{{- else if eq .component "monitor" }}
- name: GRISTMILL__QUEUES
  value: {{ include "gristmill.allQueues" .root | quote }}
{{- else if eq .component "ingest" }}
- name: GRISTMILL__INGEST__LISTEN
  value: {{ printf "%s:%d" $all.listenAddress (int $values.port) | quote }}
- name: GRISTMILL__INGEST__TOKENS_FILE
  value: /run/gristmill/ingest-tokens/tokens
{{- end }}
{{- if .serves }}
{{- include "gristmill.telemetryEnv" . }}
{{- end }}
{{- with $values.pod.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gristmill.telemetryEnv" -}}
{{- $all := .root.Values }}
{{- $tracing := $all.tracing }}
{{- if $tracing.enabled }}
- name: GRISTMILL__TELEMETRY__TRACES
  value: "true"
- name: GRISTMILL__TELEMETRY__TRACES_KEEP
  value: {{ toString $tracing.keep | quote }}
- name: GRISTMILL__TELEMETRY__SLOW_MS
  value: {{ int64 $tracing.slowMs | quote }}
{{- end }}
{{- if $all.metrics.otlp }}
- name: GRISTMILL__TELEMETRY__METRICS_OTLP
  value: "true"
{{- end }}
{{- if or $tracing.enabled $all.metrics.otlp }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ $tracing.endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ $tracing.protocol | quote }}
{{- if $tracing.headersSecret }}
# The standard has no variable for a file.
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ $tracing.headersSecret }}
      key: {{ $tracing.headersSecretKey }}
{{- end }}
- name: OTEL_SERVICE_NAME
  value: {{ default (include "gristmill.fullname" .root) $tracing.serviceName | quote }}
- name: GRISTMILL_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: GRISTMILL_POD_NODE
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- $attributes := dict "service.instance.id" "$(GRISTMILL_POD_NAME)" "k8s.pod.name" "$(GRISTMILL_POD_NAME)" "k8s.node.name" "$(GRISTMILL_POD_NODE)" "k8s.namespace.name" .root.Release.Namespace "k8s.deployment.name" .name "gristmill.role" .component }}
{{- with .pool }}{{- $_ := set $attributes "gristmill.pool" . }}{{- end }}
{{- include "gristmill.overlay" (list $attributes $tracing.resourceAttributes) }}
{{- $pairs := list }}
{{- range $key, $value := $attributes }}{{- $pairs = append $pairs (printf "%s=%s" $key $value) }}{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ $pairs | join "," | quote }}
{{- end }}
{{- end }}
