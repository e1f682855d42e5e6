{{/* The pod template of a role: metadata and spec. */}}
{{- define "gristmill.podTemplate" -}}
{{- $pod := .values.pod }}
{{- if $pod.template }}
{{- $template := include "gristmill.plainPodTemplate" . | fromYaml }}
{{- include "gristmill.overlay" (list $template $pod.template) }}
{{- $asked := int (default 30 $template.spec.terminationGracePeriodSeconds) }}
{{- if and .serves (lt $asked .needed) }}
{{- include "gristmill.refuseGrace" (list . "pod.template.spec.terminationGracePeriodSeconds" $asked) }}
{{- end }}
{{- toYaml $template }}
{{- else }}
{{- include "gristmill.plainPodTemplate" . }}
{{- end }}
{{- end }}

{{- define "gristmill.plainPodTemplate" -}}
metadata:
  labels:
    {{- $labels := deepCopy .root.Values.commonLabels }}
    {{- include "gristmill.overlay" (list $labels .values.pod.labels) }}
    {{- $_ := set $labels "app.kubernetes.io/part-of" "gristmill" }}
    {{- include "gristmill.overlay" (list $labels (include "gristmill.selector" . | fromYaml)) }}
    {{- toYaml $labels | nindent 4 }}
  {{- with include "gristmill.podAnnotations" . | fromYaml }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "gristmill.podSpec" . | trim | nindent 2 }}
{{- end }}

{{/* Pods of a role that serves are replaced when what they read at their start has changed. */}}
{{- define "gristmill.podAnnotations" -}}
{{- $all := .root.Values }}
{{- if .serves }}
{{- if not $all.existingConfigMap }}
checksum/config: {{ .settings | sha256sum }}
{{- end }}
{{- if $all.redis.url }}
checksum/redis: {{ $all.redis.url | sha256sum }}
{{- end }}
{{- if and .postgres $all.postgres.url }}
checksum/postgres: {{ $all.postgres.url | sha256sum }}
{{- end }}
{{- with $all.configChecksum }}
checksum/existing: {{ . | quote }}
{{- end }}
{{- end }}
{{- with .values.pod.annotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gristmill.podSpec" -}}
{{- $all := .root.Values }}
{{- $pod := .values.pod }}
{{- if .serves }}
serviceAccountName: {{ include "gristmill.serviceAccount" .root }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $all.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .serves }}
terminationGracePeriodSeconds: {{ .grace }}
{{- else }}
restartPolicy: Never
{{- end }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $pod.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: gristmill
    {{- include "gristmill.container" . | nindent 4 }}
  {{- with $pod.sidecars }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "gristmill.volumes" . | trim }}
volumes:
  {{- . | nindent 2 }}
{{- end }}
{{- with $pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and .serves $pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml $pod.topologySpreadConstraints | nindent 2 }}
{{- else if and .serves $pod.spread }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "gristmill.selector" $ | nindent 8 }}
    # Pods of the version before do not count, or a rollout would leave the new ones lopsided.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- end }}

{{- define "gristmill.container" -}}
{{- $all := .root.Values }}
{{- $pod := .values.pod -}}
image: {{ include "gristmill.image" .root | quote }}
imagePullPolicy: {{ $all.image.pullPolicy }}
args:
  {{- toYaml .args | nindent 2 }}
env:
  {{- include "gristmill.env" . | trim | nindent 2 }}
{{- with $pod.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .serves }}
ports:
  - name: metrics
    containerPort: {{ int $all.health.port }}
    protocol: TCP
  {{- if eq .component "ingest" }}
  - name: http
    containerPort: {{ int .values.port }}
    protocol: TCP
  {{- end }}
{{- range $probe, $path := dict "startup" "/startupz" "live" "/livez" "ready" "/readyz" }}
{{- with index $.values.probes $probe }}
{{ dict "startup" "startupProbe" "live" "livenessProbe" "ready" "readinessProbe" | dig $probe "" }}:
  httpGet: {path: {{ $path }}, port: metrics}
  periodSeconds: {{ int .periodSeconds }}
  timeoutSeconds: {{ int .timeoutSeconds }}
  failureThreshold: {{ int .failureThreshold }}
{{- end }}
{{- end }}
{{- if gt .preStop 0 }}
lifecycle:
  preStop: {sleep: {seconds: {{ .preStop }}}}
{{- end }}
{{- end }}
{{- with $pod.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.containerSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "gristmill.mounts" . | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The Secrets a role reads, as `volume: {secret, key, file}`. */}}
{{- define "gristmill.secrets" -}}
{{- $all := .root.Values }}
{{- $own := include "gristmill.fullname" .root }}
{{- if .redis }}
redis: {secret: {{ default (printf "%s-redis" $own) $all.redis.existingSecret | quote }}, key: {{ ternary $all.redis.existingSecretKey "url" (not (empty $all.redis.existingSecret)) | quote }}, file: url}
{{- with $all.redis.passwordSecret }}
redis-password: {secret: {{ quote . }}, key: {{ quote $all.redis.passwordSecretKey }}, file: password}
{{- end }}
{{- with $all.redis.tls.caSecret }}
redis-ca: {secret: {{ quote . }}, key: {{ quote $all.redis.tls.caSecretKey }}, file: ca.crt}
{{- end }}
{{- end }}
{{- if .postgres }}
{{- if and (eq .component "migrate") .values.existingSecret }}
postgres: {secret: {{ quote .values.existingSecret }}, key: {{ quote .values.existingSecretKey }}, file: url}
{{- else if $all.postgres.existingSecret }}
postgres: {secret: {{ quote $all.postgres.existingSecret }}, key: {{ quote $all.postgres.existingSecretKey }}, file: url}
{{- else }}
postgres: {secret: {{ $own }}-{{ ternary "migrate" "postgres" (eq .component "migrate") }}, key: url, file: url}
{{- end }}
{{- with $all.postgres.tls.caSecret }}
postgres-ca: {secret: {{ quote . }}, key: {{ quote $all.postgres.tls.caSecretKey }}, file: ca.crt}
{{- end }}
{{- end }}
{{- if eq .component "ingest" }}
ingest-tokens: {secret: {{ quote .values.tokensSecret }}, key: {{ quote .values.tokensSecretKey }}, file: tokens}
{{- end }}
{{- end }}

{{- define "gristmill.volumes" -}}
{{- if ne .component "migrate" }}
- name: config
  configMap:
    name: {{ quote .configMap }}
{{- end }}
{{- range $name, $from := include "gristmill.secrets" . | fromYaml }}
- name: {{ $name }}
  secret:
    secretName: {{ quote $from.secret }}
    defaultMode: 288 # 0440, for the group that fsGroup gives
    items:
      - {key: {{ quote $from.key }}, path: {{ $from.file }}}
{{- end }}
{{- with .values.pod.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gristmill.mounts" -}}
{{- if ne .component "migrate" }}
- name: config
  mountPath: /etc/gristmill
  readOnly: true
{{- end }}
{{- range $name, $_ := include "gristmill.secrets" . | fromYaml }}
- name: {{ $name }}
  mountPath: /run/gristmill/{{ $name }}
  readOnly: true
{{- end }}
{{- with .values.pod.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
