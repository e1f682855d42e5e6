{{/* Names and labels. */}}

{{- define "gristmill.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 44 | trimSuffix "-" }}
{{- end }}

{{/* 44: room for `-worker-` and the name of a pool. */}}
{{- define "gristmill.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 44 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 44 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 44 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "gristmill.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "gristmill.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "gristmill.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end }}
{{- end }}
{{- end }}

{{/* What every pod of the release has in common; nothing else may be selected by. */}}
{{- define "gristmill.releaseSelector" -}}
app.kubernetes.io/name: {{ include "gristmill.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of a role: .root, .component, .pool. Selectors cannot be changed: never add to them. */}}
{{- define "gristmill.selector" -}}
{{ include "gristmill.releaseSelector" .root }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
gristmill/pool: {{ . }}
{{- end }}
{{- end }}

{{/* Labels of an object that belongs to no role. */}}
{{- define "gristmill.labels" -}}
{{- $own := include "gristmill.releaseSelector" . | fromYaml }}
{{- $_ := set $own "app.kubernetes.io/version" (.Chart.AppVersion | replace "+" "_") }}
{{- $_ := set $own "app.kubernetes.io/part-of" "gristmill" }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- $labels := deepCopy .Values.commonLabels }}
{{- include "gristmill.overlay" (list $labels $own) }}
{{- toYaml $labels }}
{{- end }}

{{/* The metadata of an object: .root, .name, and where it has them .component, .pool, .labels, .annotations. */}}
{{- define "gristmill.metadata" -}}
{{- $labels := include "gristmill.labels" .root | fromYaml }}
{{- with .component }}{{- $_ := set $labels "app.kubernetes.io/component" . }}{{- end }}
{{- with .pool }}{{- $_ := set $labels "gristmill/pool" . }}{{- end }}
{{- with .labels }}{{- include "gristmill.overlay" (list $labels .) }}{{- end }}
{{- $annotations := deepCopy .root.Values.commonAnnotations }}
{{- with .annotations }}{{- include "gristmill.overlay" (list $annotations .) }}{{- end }}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
