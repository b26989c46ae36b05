"""`qm pki`: the cluster's own certificate authority."""

from pathlib import Path

import click

FOLDER_OPTION = click.option(
    "-f",
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="pki",
    show_default=True,
    help="Folder of the authority and the certificates.",
)
DAYS_OPTION = click.option(
    "--days", type=click.IntRange(1, 36_500), help="Validity of the certificate in days."
)


@click.group()
def pki() -> None:
    """Make, issue, renew and revoke certificates."""


@pki.command()
@FOLDER_OPTION
@click.option("--name", default="quorate authority", show_default=True)
@DAYS_OPTION
@click.option(
    "--peers-only", is_flag=True, help="Add the nodes' own authority to a folder that has another."
)
def init(folder: Path, name: str, days: int | None, peers_only: bool) -> None:
    """Make two certificate authorities: one that callers and nodes trust, and, in the folder
    `peers` beneath, one that signs nodes towards each other. Keep their keys (authority.key) where
    no node runs.
    """
    from qm.node.upkeep.pki import AUTHORITY_DAYS, PEERS_FOLDER, PkiRefused, create_authority

    days = days or AUTHORITY_DAYS
    try:
        if not peers_only:
            path = create_authority(folder, name, days=days)
            click.echo(f"{path}: every node and client trusts this certificate")
        path = create_authority(folder / PEERS_FOLDER, f"{name}, nodes"[:64], days=days)
    except (PkiRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{path}: nodes trust this one among themselves (tls.peer_authority)")


@pki.command()
@click.argument("name")
@FOLDER_OPTION
@click.option(
    "--role",
    type=click.Choice(["admin", "operator", "client", "node"]),
    required=True,
    help="Role, which says what the holder may do.",
)
@click.option("--host", "hosts", multiple=True, help="Name or address of a node; may be repeated.")
@DAYS_OPTION
def issue(folder: Path, name: str, role: str, hosts: tuple[str, ...], days: int | None) -> None:
    """Issue a certificate to NAME: a node by its name, or a principal of the API. A node gets
    one of the authority in `peers` as well, if there is one.
    """
    from qm.api.gate.identity import Role
    from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE, CERTIFICATE_DAYS, PEERS_FOLDER, PkiRefused
    from qm.node.upkeep.pki import issue as issue_certificate

    if role == Role.NODE.value and not hosts:
        raise click.UsageError("a node needs --host: clients check the address that they call")
    try:
        days = days or CERTIFICATE_DAYS
        paths: tuple[Path, ...] = ()
        peers = folder / PEERS_FOLDER
        is_node = role == Role.NODE.value
        if not (is_node and (folder / f"{name}.pem").exists()):
            paths += issue_certificate(folder, name, Role(role), hosts, days=days)
        if is_node and (peers / AUTHORITY_CERTIFICATE).exists():
            paths += issue_certificate(peers, name, Role(role), hosts, days=days)
        if not paths:
            raise PkiRefused(f"{folder / name}.pem exists: renew it, or remove it first")
    except (PkiRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo("\n".join(map(str, paths)))


@pki.command()
@click.argument("certificate", type=click.Path(path_type=Path, dir_okay=False))
@FOLDER_OPTION
@DAYS_OPTION
def renew(folder: Path, certificate: Path, days: int | None) -> None:
    """Renew CERTIFICATE for the same key and names; running nodes use it at once."""
    from qm.node.upkeep.pki import CERTIFICATE_DAYS, PkiRefused
    from qm.node.upkeep.pki import renew as renew_certificate

    try:
        end = renew_certificate(folder, certificate, days=days or CERTIFICATE_DAYS)
    except (PkiRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{certificate}: valid until {end:%Y-%m-%d}")


@pki.command()
@click.argument("certificate", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@FOLDER_OPTION
def revoke(folder: Path, certificate: Path) -> None:
    """Revoke CERTIFICATE: add it to the folder's list, which nodes read again when it changes.

    A certificate of nodes among themselves is revoked with `--folder pki/peers`.
    """
    from qm.node.upkeep.pki import PkiRefused
    from qm.node.upkeep.pki import revoke as revoke_certificate

    try:
        path = revoke_certificate(folder, certificate)
    except (PkiRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{path}: bring it to every node (tls.revoked, or tls.peer_revoked)")
