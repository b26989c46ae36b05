"""The target of `qm drill run`, from its options."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

if TYPE_CHECKING:
    from qm.drill.targets.target import Target

HOSTS_SUFFIX: Final = ".toml"
POD_HOST: Final = "{pod}.{service}.{namespace}.svc.cluster.local"
"""Host names under which the chart's nodes reach each other."""

Command = Callable[..., None]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the options."""

    target: str
    """dev, netns, kubernetes, or the path of a file of hosts."""
    folder: Path
    network: str
    other_build: Path | None = None
    stateful_set: str = ""
    pod_host: str = POD_HOST
    msmq_service: str = ""
    kubeconfig: Path | None = None
    namespace: str = ""
    tls_authority: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None


def target_options(command: Command) -> Command:
    """Add the options of the individual kinds of target to a command."""
    file = click.Path(path_type=Path, dir_okay=False)
    options = (
        click.option(
            "--network", default="127.0.13", show_default=True,
            help="First three numbers of the nodes' addresses.  [dev]",
        ),
        click.option(
            "--other-build", type=click.Path(path_type=Path, file_okay=False, exists=True),
            help="Folder with the build to upgrade to (pip install --no-deps --target);"
            " default: this one with the next apply version.  [dev, netns]",
        ),
        click.option("--stateful-set", default="", help="That of the release.  [kubernetes]"),
        click.option(
            "--pod-host", default=POD_HOST, show_default=True,
            help="Pattern of a node's address; it may contain {ip}, too.  [kubernetes]",
        ),
        click.option(
            "--msmq-service", default="",
            help="Service for MSMQ peers; must be an alias of the queue manager.  [kubernetes]",
        ),
        click.option(
            "--kubeconfig", type=file,
            help="Credentials; default: the pod's service account.  [kubernetes]",
        ),
        click.option(
            "--namespace", default="", help="Default: that of the credentials.  [kubernetes]"
        ),
        *(
            click.option(
                f"--tls-{part}", type=file, envvar=f"QM_TLS_{part.upper()}",
                help=f"PEM file.  [kubernetes; env: QM_TLS_{part.upper()}]",
            )
            for part in ("authority", "certificate", "key")
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@contextlib.contextmanager
def chosen(choice: Choice) -> Iterator["Target"]:
    """Yield the target, and remove what it made on this machine. Raises Refused, UsageError."""
    from qm.drill.targets import reasons

    if choice.target == reasons.DEV:
        from qm.drill.targets.process_target import ProcessTarget

        yield ProcessTarget(reasons.DEV, choice.folder, choice.network, _quiet, choice.other_build)
    elif choice.target == reasons.NETNS:
        from qm.drill.targets.namespace_target import NamespaceTarget

        spaces = NamespaceTarget(reasons.NETNS, choice.folder, _quiet, choice.other_build)
        try:
            yield spaces
        finally:
            spaces.remove()
    elif choice.target.endswith(HOSTS_SUFFIX):
        from qm.drill.targets.hosts_file import load_hosts
        from qm.drill.targets.hosts_target import HostsTarget

        yield HostsTarget(load_hosts(Path(choice.target)), choice.folder)
    elif choice.target == reasons.KUBERNETES:
        yield _release(choice)
    else:
        raise click.UsageError(
            f"no target {choice.target!r}: give dev, netns, kubernetes, or a file of hosts"
            f" (*{HOSTS_SUFFIX})"
        )


def _release(choice: Choice) -> "Target":
    from qm.client.calls import Tls
    from qm.drill.targets import reasons
    from qm.drill.targets.kubeconfig import kubeconfig
    from qm.drill.targets.kubernetes_target import KubernetesTarget, Release
    from qm.node.config.schema import KubernetesSection
    from qm.node.leader.kubernetes import ApiServer, ServiceAccount

    files = (choice.tls_authority, choice.tls_certificate, choice.tls_key)
    if not choice.stateful_set or None in files:
        raise click.UsageError(
            "the target kubernetes needs --stateful-set, and an admin's --tls-authority,"
            " --tls-certificate and --tls-key"
        )
    try:
        choice.pod_host.format(pod="", service="", namespace="", ip="")
    except (LookupError, ValueError, AttributeError) as error:
        raise click.UsageError(
            "--pod-host supports only {pod}, {service}, {namespace} and {ip}"
        ) from error
    click.echo(f"note: {reasons.KUBERNETES_NOTE}", err=True)
    if choice.kubeconfig is not None:
        grant = kubeconfig(choice.kubeconfig, choice.namespace)
    else:
        grant = ServiceAccount(KubernetesSection(), choice.namespace)
    release = Release(
        stateful_set=choice.stateful_set,
        pod_host=choice.pod_host,
        msmq_service=choice.msmq_service,
    )
    authority, certificate, key = (file for file in files if file is not None)
    return KubernetesTarget(
        ApiServer(grant), release, Tls(authority, certificate, key), choice.folder
    )


def acts_on_others(choice: Choice) -> bool:
    """Return whether the target is a cluster that others may use."""
    from qm.drill.targets import reasons

    return choice.target not in (reasons.DEV, reasons.NETNS)


def _quiet(text: str) -> None:
    del text
