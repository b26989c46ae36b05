"""Minimal schemas of the custom resources that the chart renders; other unknown kinds fail."""

from typing import Any, Final

import msgspec


class Metadata(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """Base: unknown fields are typing errors."""


class IssuerRef(Strict):
    name: str
    kind: str
    group: str = "cert-manager.io"


class PrivateKey(Strict):
    algorithm: str
    size: int
    rotationPolicy: str = "Never"  # noqa: N815


class CertificateSpec(Strict):
    secretName: str  # noqa: N815
    issuerRef: IssuerRef  # noqa: N815
    commonName: str  # noqa: N815
    duration: str
    renewBefore: str = ""  # noqa: N815
    isCA: bool = False  # noqa: N815
    privateKey: PrivateKey | None = None  # noqa: N815
    usages: list[str] = []
    dnsNames: list[str] = []  # noqa: N815
    uris: list[str] = []


class Certificate(Strict):
    apiVersion: str  # noqa: N815
    kind: str
    metadata: Metadata
    spec: CertificateSpec


class CaIssuer(Strict):
    secretName: str  # noqa: N815


class IssuerSpec(Strict):
    selfSigned: dict[str, Any] | None = None  # noqa: N815
    ca: CaIssuer | None = None


class Issuer(Strict):
    apiVersion: str  # noqa: N815
    kind: str
    metadata: Metadata
    spec: IssuerSpec


class Endpoint(Strict):
    port: str
    path: str
    interval: str


class LabelSelector(Strict):
    matchLabels: dict[str, str]  # noqa: N815


class ServiceMonitorSpec(Strict):
    selector: LabelSelector
    endpoints: list[Endpoint]


class ServiceMonitor(Strict):
    apiVersion: str  # noqa: N815
    kind: str
    metadata: Metadata
    spec: ServiceMonitorSpec


class Alert(Strict, rename={"for_": "for"}):
    alert: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]
    for_: str = "0s"


class RuleGroup(Strict):
    name: str
    rules: list[Alert]


class RuleSpec(Strict):
    groups: list[RuleGroup]


class PrometheusRule(Strict):
    apiVersion: str  # noqa: N815
    kind: str
    metadata: Metadata
    spec: RuleSpec


class SparkDeps(Strict):
    packages: list[str] = []


class RestartPolicy(Strict):
    type: str


class SparkPod(Strict):
    cores: int
    memory: str
    instances: int = 1
    serviceAccount: str = ""  # noqa: N815
    envFrom: list[dict[str, Any]] = []  # noqa: N815
    volumeMounts: list[dict[str, str]] = []  # noqa: N815


class SparkVolume(Strict):
    name: str
    ephemeral: dict[str, Any]


class SparkSpec(Strict):
    type: str
    pythonVersion: str  # noqa: N815
    mode: str
    sparkVersion: str  # noqa: N815
    image: str
    mainApplicationFile: str  # noqa: N815
    arguments: list[str]
    restartPolicy: RestartPolicy  # noqa: N815
    driver: SparkPod
    executor: SparkPod
    deps: SparkDeps | None = None
    sparkConf: dict[str, str] = {}  # noqa: N815
    volumes: list[SparkVolume] = []


class Scheduled(Strict):
    schedule: str
    concurrencyPolicy: str  # noqa: N815
    successfulRunHistoryLimit: int  # noqa: N815
    failedRunHistoryLimit: int  # noqa: N815
    template: SparkSpec


class ScheduledSparkApplication(Strict):
    apiVersion: str  # noqa: N815
    kind: str
    metadata: Metadata
    spec: Scheduled


CUSTOM_KINDS: Final[dict[tuple[str, str], type[Any]]] = {
    ("cert-manager.io/v1", "Certificate"): Certificate,
    ("cert-manager.io/v1", "Issuer"): Issuer,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): ServiceMonitor,
    ("monitoring.coreos.com/v1", "PrometheusRule"): PrometheusRule,
    ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication"): ScheduledSparkApplication,
}
