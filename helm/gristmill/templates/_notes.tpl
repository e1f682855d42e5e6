{{/* NOTES.txt; here, so that it can be rendered by a test. */}}
{{- define "gristmill.notes" -}}
{{- $all := .Values }}
{{- $fullname := include "gristmill.fullname" . }}
{{- $found := dict }}
{{- include "gristmill.roles" (list . $found) -}}
{{ .Chart.Name }} {{ .Chart.AppVersion }}, release {{ .Release.Name }} in {{ .Release.Namespace }}.

From SIGTERM to the end of a pod:
{{- range $role := $found.roles }}
{{- $drain := $role.values.drain }}
  {{ printf "%-24s" (include "gristmill.where" $role) }} window {{ int $drain.windowSeconds }} s + flush {{ int $drain.graceSeconds }} s + margin {{ int $drain.marginSeconds }} s{{ if $role.preStop }} + preStop {{ $role.preStop }} s{{ end }} -> grace period {{ $role.grace }} s
{{- end }}

Runs that end inside the window end as ever. Longer ones are handed back, uncharged, and run again elsewhere.

A rollout does not wait for pods that drain: for a while twice the replicas are alive. It takes about
{{- range $role := $found.roles }}
{{- if not (include "gristmill.scaled" $role) }}
{{- $replicas := int $role.values.replicas }}
{{- $surge := dig "maxSurge" 1 $role.values }}
{{- $unavailable := dig "maxUnavailable" 0 $role.values }}
{{- if not (or (kindIs "string" $surge) (kindIs "string" $unavailable)) }}
{{- $step := add (int $surge) (int $unavailable) | int }}
{{- $steps := div (add $replicas $step -1) $step }}
  {{ printf "%-24s" (include "gristmill.where" $role) }} {{ $steps }} x (start + {{ int (default 0 $role.values.minReadySeconds) }} s), and up to {{ $role.grace }} s until the last old pod is gone
{{- end }}
{{- end }}
{{- end }}

See it work:
  helm test {{ .Release.Name }} --namespace {{ .Release.Namespace }}
{{- if $all.monitor.enabled }}
  kubectl --namespace {{ .Release.Namespace }} port-forward service/{{ $fullname }}-monitor {{ int $all.health.port }}
  curl http://localhost:{{ int $all.health.port }}/metrics
{{- end }}
{{- if $all.ingest.enabled }}

Jobs by HTTP: http://{{ $fullname }}-ingest.{{ .Release.Namespace }}.svc:{{ int $all.ingest.service.port }}/v1/queues/QUEUE/jobs
{{- end }}
{{- with include "gristmill.warnings" (dict "root" . "roles" $found.roles) }}
{{ . }}
{{- end }}
{{- end }}

{{- define "gristmill.warnings" -}}
{{- $root := .root }}
{{- $all := $root.Values }}
{{- range $role := .roles }}
{{- $where := include "gristmill.where" $role }}
{{- if gt $role.grace 600 }}
WARNING {{ $where }}: the grace period is {{ $role.grace }} s. The cluster autoscaler ends pods after 600 s where nobody told it otherwise, and spot nodes leave less: their jobs are found after the lease, and runs are repeated.
{{- end }}
{{- if eq $role.component "worker" }}
{{- if not (include "gristmill.scaled" $role) }}
{{- if lt (int $role.values.replicas) 2 }}
WARNING {{ $where }}: a single replica. Nobody works while its node is drained, and it has no disruption budget.
{{- end }}
{{- end }}
{{- $remote := dig "remote" "hard_limit_ms" 30000 $role.values.config | int64 }}
{{- $limit := 0 | int64 }}
{{- range $kind := default dict $role.values.config.kinds }}
{{- $limit = max $limit (int64 (default $remote $kind.hard_limit_ms)) | int64 }}
{{- end }}
{{- $window := mul 1000 (int64 $role.values.drain.windowSeconds) }}
{{- if gt $limit $window }}
WARNING {{ $where }}: runs of remote kinds may take {{ $limit }} ms (hard_limit_ms), longer than the drain window of {{ $window }} ms: a rollout hands the longest back.
{{- end }}
{{- end }}
{{- if and (eq $role.component "ingest") (eq $role.preStop 0) (gt (int $role.values.preStopSeconds) 0) }}
WARNING ingest: Kubernetes before 1.30 has no preStop sleep. A pod that ends refuses connections of those that have not heard of it.
{{- end }}
{{- end }}
{{- if contains "@" $all.redis.url }}
WARNING redis.url holds a password, which Helm keeps with the release. Put it in a Secret of your own: redis.existingSecret, or redis.passwordSecret.
{{- end }}
{{- if contains "@" $all.postgres.url }}
WARNING postgres.url holds a password, which Helm keeps with the release. Put it in a Secret of your own: postgres.existingSecret.
{{- end }}
{{- if not $all.tracing.enabled }}
WARNING tracing is off (tracing.enabled, tracing.endpoint).
{{- end }}
{{- if not (or $all.metrics.podMonitor.enabled $all.metrics.serviceMonitor.enabled $all.metrics.otlp) }}
WARNING nobody is told to scrape the metrics (metrics.podMonitor.enabled); without them no alert can fire.
{{- end }}
{{- if hasPrefix "localhost/" $all.image.repository }}
WARNING image.repository is {{ $all.image.repository }}: nodes find it only where it was built.
{{- end }}
{{- end }}
