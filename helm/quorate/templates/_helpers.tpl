{{- define "quorate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains "quorate" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-quorate" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "quorate.headless" -}}{{ include "quorate.fullname" . }}-nodes{{- end -}}

{{- define "quorate.selector" -}}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quorate.labels" -}}
{{ include "quorate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* labels of a pod that calls the cluster and accepts no calls */}}
{{- define "quorate.toolLabels" -}}
{{ include "quorate.labels" . }}
app.kubernetes.io/component: tool
{{- end -}}

{{- define "quorate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "quorate.auditImage" -}}
{{- with .Values.audit.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Values.image.tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "quorate.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{ include "quorate.fullname" . }}-tls
{{- else -}}
{{ required "tls.existingSecret is needed unless tls.certManager.enabled: make one with `qm pki issue`" .Values.tls.existingSecret }}
{{- end -}}
{{- end -}}

{{/* Secret of the nodes among themselves */}}
{{- define "quorate.peersSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{ include "quorate.fullname" . }}-peers-tls
{{- else -}}
{{ required "tls.peers.existingSecret is needed with tls.peers.enabled unless tls.certManager.enabled: make one with `qm pki init` and `qm pki issue`" .Values.tls.peers.existingSecret }}
{{- end -}}
{{- end -}}

{{/* Secret of the release's jobs; empty: there is none */}}
{{- define "quorate.adminSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{ include "quorate.fullname" . }}-admin-tls
{{- else -}}
{{ .Values.tls.adminSecret }}
{{- end -}}
{{- end -}}

{{- define "quorate.sealingSecret" -}}
{{ .Values.sealing.existingSecret | default (printf "%s-sealing" (include "quorate.fullname" .)) }}
{{- end -}}

{{- define "quorate.identitySecret" -}}
{{ .Values.identity.existingSecret | default (printf "%s-identity" (include "quorate.fullname" .)) }}
{{- end -}}

{{/* contents of Secrets that nodes read only at start and that are created elsewhere */}}
{{- define "quorate.suppliedSecrets" -}}
{{- range $name := compact (list .Values.archive.credentialsSecret .Values.sealing.existingSecret) -}}
{{ $name }}: {{ get (lookup "v1" "Secret" $.Release.Namespace $name) "data" | toJson }}
{{ end -}}
{{- end -}}

{{- define "quorate.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "quorate.fullname" .) }}
{{- end -}}

{{- define "quorate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "quorate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* host of a member by its ordinal: argument (list root ordinal) */}}
{{- define "quorate.host" -}}
{{- $root := index . 0 -}}
{{ include "quorate.fullname" $root }}-{{ index . 1 }}.{{ include "quorate.headless" $root }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}
{{- end -}}

{{/* what tools of the release need to call the control plane */}}
{{- define "quorate.clientEnv" -}}
- name: QM_ENDPOINT
  value: {{ include "quorate.fullname" . }}-api.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:1811
- name: QM_TLS_AUTHORITY
  value: /etc/quorate/tls/ca.crt
- name: QM_TLS_CERTIFICATE
  value: /etc/quorate/tls/tls.crt
- name: QM_TLS_KEY
  value: /etc/quorate/tls/tls.key
{{- end -}}

{{/* how many members: with keepScale as many as the StatefulSet has now, so that an upgrade neither
undoes a change of scale nor conflicts with who made it */}}
{{- define "quorate.replicas" -}}
{{- $live := dict -}}
{{- if .Values.keepScale -}}
{{- $live = lookup "apps/v1" "StatefulSet" .Release.Namespace (include "quorate.fullname" .) | default dict -}}
{{- end -}}
{{- dig "spec" "replicas" .Values.replicas $live -}}
{{- end -}}

{{/* Labels and annotations of the Services of RPC. */}}
{{- define "quorate.rpcMetadata" -}}
labels: {{- include "quorate.labels" . | nindent 2 }}
{{- with .Values.rpc.service.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What the Services of RPC have in common. */}}
{{- define "quorate.rpcService" -}}
type: {{ .Values.rpc.service.type }}
{{- if eq .Values.rpc.service.type "LoadBalancer" }}
externalTrafficPolicy: {{ .Values.rpc.service.externalTrafficPolicy }}
{{- with .Values.rpc.service.loadBalancerIP }}
loadBalancerIP: {{ . | quote }}
{{- end }}
{{- with .Values.rpc.service.loadBalancerClass }}
loadBalancerClass: {{ . }}
{{- end }}
{{- with .Values.rpc.service.loadBalancerSourceRanges }}
loadBalancerSourceRanges: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
