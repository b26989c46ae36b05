"""`qm pki`: the cluster's own certificate authority."""

from pathlib import Path

import click

FOLDER_OPTION = click.option(
    "-f",
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="pki",
    show_default=True,
    help="Where the authority and the certificates are.",
)
DAYS_OPTION = click.option(
    "--days", type=click.IntRange(1, 36_500), help="Until the certificate ends."
)


@click.group()
def pki() -> None:
    """Make, issue and renew certificates."""


@pki.command()
@FOLDER_OPTION
@click.option("--name", default="quorate authority", show_default=True)
@DAYS_OPTION
def init(folder: Path, name: str, days: int | None) -> None:
    """Make a certificate authority. Keep its key (authority.key) where no node runs."""
    from qm.node.upkeep.pki import AUTHORITY_DAYS, PkiRefused, create_authority

    try:
        path = create_authority(folder, name, days=days or AUTHORITY_DAYS)
    except (PkiRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{path}: every node and client trusts this certificate")


@pki.command()
@click.argument("name")
@FOLDER_OPTION
@click.option(
    "--role",
    type=click.Choice(["admin", "operator", "client", "node"]),
    required=True,
    help="What the holder may do.",
)
@click.option("--host", "hosts", multiple=True, help="Name or address of a node; may be repeated.")
@DAYS_OPTION
def issue(folder: Path, name: str, role: str, hosts: tuple[str, ...], days: int | None) -> None:
    """Issue a certificate to NAME: a node by its name, or a principal of the API."""
    from qm.api.gate.identity import Role
    from qm.node.upkeep.pki import CERTIFICATE_DAYS, PkiRefused
    from qm.node.upkeep.pki import issue as issue_certificate

    if role == Role.NODE.value and not hosts:
        raise click.UsageError("a node needs --host: clients check the address that they call")
    try:
        paths = issue_certificate(folder, name, Role(role), hosts, days=days or CERTIFICATE_DAYS)
    except (PkiRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo("\n".join(map(str, paths)))


@pki.command()
@click.argument("certificate", type=click.Path(path_type=Path, dir_okay=False))
@FOLDER_OPTION
@DAYS_OPTION
def renew(folder: Path, certificate: Path, days: int | None) -> None:
    """Renew CERTIFICATE for the same key and names; running nodes take it at once."""
    from qm.node.upkeep.pki import CERTIFICATE_DAYS, PkiRefused
    from qm.node.upkeep.pki import renew as renew_certificate

    try:
        end = renew_certificate(folder, certificate, days=days or CERTIFICATE_DAYS)
    except (PkiRefused, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{certificate}: valid until {end:%Y-%m-%d}")
