{{/* The Deployment of a role. */}}
{{- define "gristmill.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "gristmill.metadata" . | trim | nindent 2 }}
spec:
  {{- if not (include "gristmill.scaled" .) }}
  replicas: {{ int .values.replicas }}
  {{- end }}
  revisionHistoryLimit: {{ int (default 5 .values.revisionHistoryLimit) }}
  progressDeadlineSeconds: {{ int (default 600 .values.progressDeadlineSeconds) }}
  minReadySeconds: {{ int (default 0 .values.minReadySeconds) }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: {{ include "gristmill.step" (dig "maxSurge" 1 .values) }}
      maxUnavailable: {{ include "gristmill.step" (dig "maxUnavailable" 0 .values) }}
  selector:
    matchLabels:
      {{- include "gristmill.selector" . | nindent 6 }}
  template:
    {{- include "gristmill.podTemplate" . | nindent 4 }}
{{- end }}

{{/* A number or a share of the replicas. */}}
{{- define "gristmill.step" -}}
{{- if kindIs "string" . }}{{ quote . }}{{ else }}{{ int . }}{{ end }}
{{- end }}

{{- define "gristmill.pdb" -}}
{{- if and .values.pdb.enabled (gt (include "gristmill.leastReplicas" . | int) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "gristmill.metadata" . | trim | nindent 2 }}
spec:
  maxUnavailable: {{ include "gristmill.step" .values.pdb.maxUnavailable }}
  # Pods that never got ready do not block the draining of their nodes.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "gristmill.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- define "gristmill.hpa" -}}
{{- with .values.hpa }}
{{- if .enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "gristmill.metadata" $ | trim | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $.name }}
  minReplicas: {{ int .minReplicas }}
  maxReplicas: {{ int .maxReplicas }}
  metrics:
    {{- if gt (int .targetCPUUtilizationPercentage) 0 }}
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ int .targetCPUUtilizationPercentage }}
    {{- end }}
    {{- with .metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  behavior:
    {{- $behavior := dict "scaleDown" (dict "stabilizationWindowSeconds" (int .scaleDownStabilizationSeconds)) }}
    {{- include "gristmill.overlay" (list $behavior .behavior) }}
    {{- toYaml $behavior | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}

{{/* One trigger for each queue of the pool; of several their sum counts, since a pool works for all of them. */}}
{{- define "gristmill.scaledObject" -}}
{{- $role := . }}
{{- with .values.keda }}
{{- if .enabled }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "gristmill.metadata" (dict "root" $role.root "name" $role.name "component" $role.component "pool" $role.pool "annotations" .annotations) | trim | nindent 2 }}
spec:
  scaleTargetRef:
    name: {{ $role.name }}
  minReplicaCount: {{ int .minReplicas }}
  maxReplicaCount: {{ int .maxReplicas }}
  pollingInterval: {{ int .pollingSeconds }}
  cooldownPeriod: {{ int .cooldownSeconds }}
  {{- if gt (int .fallbackReplicas) 0 }}
  fallback:
    failureThreshold: {{ int .fallbackAfterFailures }}
    replicas: {{ int .fallbackReplicas }}
  {{- end }}
  advanced:
    {{- if gt (len $role.values.queues) 1 }}
    scalingModifiers:
      {{- $names := list }}
      {{- range $at, $_ := $role.values.queues }}{{- $names = append $names (printf "q%d" $at) }}{{- end }}
      formula: {{ join " + " $names | quote }}
      target: {{ int .jobsPerReplica | quote }}
      activationTarget: {{ int .activationJobs | quote }}
      metricType: AverageValue
    {{- end }}
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown:
          stabilizationWindowSeconds: {{ int .scaleDownStabilizationSeconds }}
  triggers:
    {{- range $at, $queue := $role.values.queues }}
    - type: metrics-api
      name: q{{ $at }}
      metricType: AverageValue
      metadata:
        url: {{ printf "http://%s-monitor.%s.svc:%d/autoscale/%s" (include "gristmill.fullname" $role.root) $role.root.Release.Namespace (int $role.root.Values.health.port) (splitList ":" $queue | first) | quote }}
        valueLocation: jobs
        targetValue: {{ int $role.values.keda.jobsPerReplica | quote }}
        activationTargetValue: {{ int $role.values.keda.activationJobs | quote }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}
