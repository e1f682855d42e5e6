{{/* Helpers that change the map they are given; a template can answer text alone. */}}

{{/* (list BELOW ABOVE): maps are merged, everything else of ABOVE replaces, null removes. ABOVE is left as it is. */}}
{{- define "gristmill.overlay" -}}
{{- $below := index . 0 }}
{{- range $key, $value := index . 1 }}
{{- if and (kindIs "map" $value) (kindIs "map" (index $below $key)) }}
{{- include "gristmill.overlay" (list (index $below $key) $value) }}
{{- else if kindIs "invalid" $value }}
{{- $_ := unset $below $key }}
{{- else if kindIs "map" $value }}
{{- $_ := set $below $key (deepCopy $value) }}
{{- else }}
{{- $_ := set $below $key $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* (list BELOW ABOVE): as overlay, for `pod` blocks: extra lists add up. */}}
{{- define "gristmill.overlayPod" -}}
{{- $below := index . 0 }}
{{- $above := deepCopy (index . 1) }}
{{- range $list := list "extraEnv" "extraEnvFrom" "extraVolumes" "extraVolumeMounts" "initContainers" "sidecars" }}
{{- with index $above $list }}
{{- $_ := set $above $list (concat (index $below $list) .) }}
{{- end }}
{{- end }}
{{- include "gristmill.overlay" (list $below $above) }}
{{- end }}

{{/* Numbers of values are floats, and toToml writes 5 as 5.0, which is no whole number to who reads it. */}}
{{- define "gristmill.wholeNumbers" -}}
{{- $map := . }}
{{- range $key, $value := $map }}
{{- if kindIs "map" $value }}
{{- include "gristmill.wholeNumbers" $value }}
{{- else if kindIs "float64" $value }}
{{- if eq $value (floor $value) }}{{- $_ := set $map $key (int64 $value) }}{{- end }}
{{- else if kindIs "slice" $value }}
{{- $whole := list }}
{{- range $item := $value }}
{{- if kindIs "map" $item }}{{- include "gristmill.wholeNumbers" $item }}{{- end }}
{{- if and (kindIs "float64" $item) (eq (toString $item) (toString (floor (float64 $item)))) }}
{{- $whole = append $whole (int64 $item) }}
{{- else }}
{{- $whole = append $whole $item }}
{{- end }}
{{- end }}
{{- $_ := set $map $key $whole }}
{{- end }}
{{- end }}
{{- end }}
