{{/*
A role is a map that templates hand around; `gristmill.role` fills it. Given: .root, .component, .pool (of workers).
  name         of its objects
  values       its own block over what holds for all, with pod, probes and drain merged
  args         of the program
  settings     the text of gristmill.toml, "" with an existing ConfigMap
  configMap    where it lies
  serves       it runs on, has a health port and probes
  redis, postgres   which addresses it is told
  preStop      seconds
  grace        the grace period, computed
*/}}
{{- define "gristmill.role" -}}
{{- $role := . }}
{{- $root := .root }}
{{- $all := $root.Values }}
{{- $fullname := include "gristmill.fullname" $root }}
{{- $values := dict }}
{{- $layers := list }}
{{- if eq .component "worker" }}
{{- $given := default dict (index $all.workers .pool) }}
{{- $values = deepCopy $all.worker }}
{{- include "gristmill.overlay" (list $values $given) }}
{{- $layers = list $all.worker $given }}
{{- else if eq .component "migrate" }}
{{- $values = deepCopy $all.postgres.migrate }}
{{- $layers = list $all.postgres.migrate }}
{{- else }}
{{- $values = deepCopy (index $all .component) }}
{{- $layers = list (index $all .component) }}
{{- end }}
{{- $pod := deepCopy $all.pod }}
{{- $probes := deepCopy $all.probes }}
{{- $drain := deepCopy $all.drain }}
{{- $config := deepCopy $all.config }}
{{- range $layer := $layers }}
{{- include "gristmill.overlayPod" (list $pod (default dict $layer.pod)) }}
{{- include "gristmill.overlay" (list $probes (default dict $layer.probes)) }}
{{- include "gristmill.overlay" (list $drain (default dict $layer.drain)) }}
{{- include "gristmill.overlay" (list $config (default dict $layer.config)) }}
{{- end }}
{{- $_ := set $values "pod" $pod }}
{{- $_ := set $values "probes" $probes }}
{{- $_ := set $values "drain" $drain }}
{{- $_ := set $values "config" $config }}
{{- $_ := set $role "values" $values }}
{{- $_ := set $role "name" (printf "%s-%s" $fullname .component) }}
{{- with .pool }}{{- $_ := set $role "name" (printf "%s-worker-%s" $fullname .) }}{{- end }}

{{- include "gristmill.wholeNumbers" $config }}
{{- $settings := toToml $config | trim }}
{{- $_ := set $role "configMap" $fullname }}
{{- /* Not by comparing: pods would be replaced when the shared settings become those of the pool. */}}
{{- range $layers }}
{{- if .config }}{{- $_ := set $role "configMap" $role.name }}{{- end }}
{{- end }}
{{- with $all.existingConfigMap }}
{{- $_ := set $role "configMap" . }}
{{- $settings = "" }}
{{- end }}
{{- $_ := set $role "settings" $settings }}

{{- $command := dict "worker" (list "node") "monitor" (list "monitor") "ingest" (list "ingest") "relay" (list "postgres" "relay") "migrate" (list "postgres" "migrate") "test" (list "roundtrip") }}
{{- $_ := set $role "args" (concat (index $command .component) (list "--config" "/etc/gristmill/gristmill.toml")) }}
{{- $_ := set $role "serves" (has .component (list "worker" "monitor" "ingest" "relay")) }}
{{- $_ := set $role "redis" (ne .component "migrate") }}
{{- $configured := or $all.postgres.url $all.postgres.existingSecret (and (eq .component "migrate") $values.existingSecret) }}
{{- $_ := set $role "postgres" (and (has .component (list "worker" "monitor" "relay" "migrate")) (not (empty $configured))) }}
{{- if eq .component "migrate" }}{{- $_ := set $role "args" (list "postgres" "migrate") }}{{- end }}

{{- $preStop := 0 }}
{{- if and (eq .component "ingest") (semverCompare ">=1.30.0-0" $root.Capabilities.KubeVersion.Version) }}
{{- $preStop = int $values.preStopSeconds }}
{{- end }}
{{- $_ := set $role "preStop" $preStop }}
{{- $needed := add $preStop (int $drain.windowSeconds) (int $drain.graceSeconds) (int $drain.marginSeconds) | int }}
{{- $_ := set $role "needed" $needed }}
{{- $_ := set $role "grace" (max $needed (int $drain.terminationGracePeriodSeconds) | int) }}
{{- end }}

{{/* gristmill.toml as it is where a pool has no settings of its own. */}}
{{- define "gristmill.sharedSettings" -}}
{{- $config := deepCopy .Values.config }}
{{- include "gristmill.wholeNumbers" $config }}
{{- toToml $config | trim }}
{{- end }}

{{/* (list ROOT LIST-IN-A-MAP): the roles that run on, filled, appended to .roles of the map. */}}
{{- define "gristmill.roles" -}}
{{- $root := index . 0 }}
{{- $into := index . 1 }}
{{- $roles := list }}
{{- range $pool := keys $root.Values.workers | sortAlpha }}
{{- $role := dict "root" $root "component" "worker" "pool" $pool }}
{{- include "gristmill.role" $role }}
{{- if $role.values.enabled }}{{- $roles = append $roles $role }}{{- end }}
{{- end }}
{{- range $component := list "monitor" "ingest" "relay" }}
{{- if (index $root.Values $component).enabled }}
{{- $role := dict "root" $root "component" $component }}
{{- include "gristmill.role" $role }}
{{- $roles = append $roles $role }}
{{- end }}
{{- end }}
{{- $_ := set $into "roles" $roles }}
{{- end }}

{{/* "yes" where something else says how many replicas there are. */}}
{{- define "gristmill.scaled" -}}
{{- $hpa := default dict .values.hpa }}
{{- $keda := default dict .values.keda }}
{{- if or $hpa.enabled $keda.enabled (not (hasKey .values "replicas")) }}yes{{ end }}
{{- end }}

{{/* The least number of replicas that is meant. */}}
{{- define "gristmill.leastReplicas" -}}
{{- $hpa := default dict .values.hpa }}
{{- $keda := default dict .values.keda }}
{{- if $hpa.enabled }}{{ int $hpa.minReplicas }}
{{- else if $keda.enabled }}{{ int $keda.minReplicas }}
{{- else }}{{ int (default 1 .values.replicas) }}
{{- end }}
{{- end }}

{{/* The queues of all pools, each once. */}}
{{- define "gristmill.allQueues" -}}
{{- $queues := list }}
{{- $found := dict }}
{{- include "gristmill.roles" (list . $found) }}
{{- range $role := $found.roles }}
{{- if eq $role.component "worker" }}
{{- $queues = concat $queues $role.values.queues }}
{{- end }}
{{- end }}
{{- $queues | uniq | join "," }}
{{- end }}
