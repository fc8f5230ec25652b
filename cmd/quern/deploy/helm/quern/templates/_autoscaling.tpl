{{- define "quern.autoscaling" }}
{{- $s := .of.autoscaling }}
{{- if ne $s.type "none" }}
{{- if not $s.queues }}
{{- fail "host.autoscaling.queues: name the queues by which to scale, as [{tenant: acme, queue: mail}]" }}
{{- end }}
{{- if gt (int $s.minReplicas) (int $s.maxReplicas) }}
{{- fail (printf "host.autoscaling: minReplicas %d is more than maxReplicas %d" (int $s.minReplicas) (int $s.maxReplicas)) }}
{{- end }}
{{- if eq $s.type "hpa" }}
{{- if lt (int $s.minReplicas) 1 }}
{{- fail "host.autoscaling.minReplicas: an HPA keeps at least 1 host: take type keda to scale to zero" }}
{{- end }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "quern.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicas: {{ int $s.minReplicas }}
  maxReplicas: {{ int $s.maxReplicas }}
  metrics:
    {{- range $s.queues }}
    - type: External
      external:
        metric:
          name: quern_queue_oldest_pending_age_seconds
          selector:
            matchLabels: {tenant: {{ .tenant | quote }}, queue: {{ .queue | quote }}}
        target: {type: Value, value: {{ int $s.targetAgeSeconds | quote }}}
    {{- end }}
  behavior: # a host that ends gives up what it compiled, and tasks over its grace
    scaleUp: {stabilizationWindowSeconds: 0, policies: [{type: Percent, value: 100, periodSeconds: 30}, {type: Pods, value: 2, periodSeconds: 30}]}
    scaleDown: {stabilizationWindowSeconds: {{ int $s.scaleDownSeconds }}, policies: [{type: Pods, value: 1, periodSeconds: 60}]}
{{- else }}
{{- $api := eq $s.trigger "api" }}
{{- if and $api (not .root.Values.admin.enabled) }}
{{- fail "host.autoscaling.trigger: api asks the admin Deployment: set admin.enabled, or take trigger prometheus" }}
{{- end }}
{{- if and (not $api) (lt (int $s.minReplicas) 1) }}
{{- fail "host.autoscaling.minReplicas: only hosts have metrics, so Prometheus sees no task while there is none: take trigger api, or at least 1 host" }}
{{- end }}
{{- $tls := .root.Values.admin.tlsSecret }}
{{- if $api }}
---
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  {{- include "quern.metadata" . | nindent 2 }}
spec:
  secretTargetRef:
    - {parameter: token, name: {{ required "host.autoscaling.tokenSecret.name: name the Secret with the token of a viewer" $s.tokenSecret.name | quote }}, key: {{ $s.tokenSecret.key | quote }}}
{{- end }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "quern.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {name: {{ .name }}}
  minReplicaCount: {{ int $s.minReplicas }}
  maxReplicaCount: {{ int $s.maxReplicas }}
  pollingInterval: {{ int $s.pollSeconds }}
  cooldownPeriod: {{ int $s.scaleDownSeconds }}
  fallback: {failureThreshold: 3, replicas: {{ int $s.fallbackReplicas }}}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown: {stabilizationWindowSeconds: {{ int $s.scaleDownSeconds }}, policies: [{type: Pods, value: 1, periodSeconds: 60}]}
  triggers:
    {{- $base := printf "%s://%s-admin.%s.svc:%d%s" (ternary "https" "http" (not (empty $tls))) (include "quern.name" .root) .root.Release.Namespace (int .root.Values.admin.service.port) (get .root.Values.admin.settings "base-path") }}
    {{- range $s.queues }}
    {{- if $api }}
    - type: metrics-api
      metadata:
        url: {{ printf "%s/v1/tenants/%s/queues/%s/load" $base .tenant .queue | quote }}
        valueLocation: load
        targetValue: {{ int ($s.tasksPerHost) | quote }}
        activationTargetValue: "0"
        authMode: bearer
      authenticationRef: {name: {{ $.name }}}
    {{- else }}
    - type: prometheus
      metadata:
        serverAddress: {{ required "host.autoscaling.prometheusAddress: name the server, as http://prometheus.monitoring:9090" $s.prometheusAddress | quote }}
        query: {{ printf "sum(max by (state) (quern_queue_depth{tenant=%q,queue=%q,state=~\"pending|reserved|started\"}))" .tenant .queue | quote }}
        threshold: {{ int $s.tasksPerHost | quote }}
        activationThreshold: "0"
        ignoreNullValues: "false" # nothing is scraped: fallback.replicas, not zero
    {{- end }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}
