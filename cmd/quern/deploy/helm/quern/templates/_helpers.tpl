{{- define "quern.name" -}}
{{- if contains "quern" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-quern" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "quern.selector" -}}
app.kubernetes.io/name: quern
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .part }}
quern-{{ $.component }}: {{ . }}
{{- end }}
{{- end -}}

{{- define "quern.labels" -}}
{{ include "quern.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "quern.image" -}}
{{- $i := .Values.image -}}
{{- $repository := required "image.repository: no image is published; build one (cmd/quern/deploy/README.md), push it and name it here" $i.repository -}}
{{- if $i.digest }}{{ $repository }}@{{ $i.digest }}{{ else }}{{ $repository }}:{{ $i.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "quern.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "quern.labels" . | nindent 2 }}
{{- end -}}

{{- /* What every pod has: nothing that a restricted namespace refuses. */ -}}
{{- define "quern.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # a Service named quern-… would become a setting QUERN_…
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault} # allows Landlock and a further filter, which hosts install
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" }}
{{- with index $.of $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "quern.container" -}}
image: {{ include "quern.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .of.resources | nindent 2 }}
{{- end -}}

{{- /* The Secret of Redis's URL: .of.redis, or that of all. */ -}}
{{- define "quern.redis" -}}
{{- $r := mergeOverwrite (deepCopy .root.Values.redis) (.of.redis | default dict) -}}
name: redis
secret:
  secretName: {{ required "redis.existingSecret: name the Secret that has the URL of Redis, as kubectl create secret generic quern-redis --from-literal=url=rediss://… makes it" $r.existingSecret | quote }}
  items: [{key: {{ $r.key | quote }}, path: url}]
  defaultMode: 0440
{{- end -}}

{{- define "quern.secret" -}}
name: {{ .name }}
secret: {secretName: {{ .secret | quote }}, defaultMode: 0440{{ with .items }}, items: {{ toJson . }}{{ end }}}
{{- end -}}

{{- /* Settings as arguments, for commands that take no file. */ -}}
{{- define "quern.arguments" -}}
{{- range $flag, $value := . }}
{{- if kindIs "slice" $value }}{{ $value = join "," $value }}{{ end }}
{{- if kindIs "float64" $value }}{{ $value = toJson $value }}{{ end }}
- {{ printf "--%s=%v" $flag $value | quote }}
{{- end }}
{{- end -}}

{{- define "quern.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  failureThreshold: 90
livenessProbe: # fails only if the process does not answer: an outage of Redis restarts nothing
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}
