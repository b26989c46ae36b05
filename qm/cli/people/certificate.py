"""`qm certificate`: certificates with which people sign their messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.output import confirm, instant, output_option, show_one, show_rows, yes_option
from qm.cli.people.documents import pem_text
from qm.cli.people.user import certificate_of

_COLUMNS = ("digest", "subject", "not_after", "key_bits", "is_internal")


@click.group()
def certificate() -> None:
    """Register, list and remove certificates of people."""


def _person_options(command: Any) -> Any:
    for option in (
        click.option("--sid", default="", metavar="S-1-...", help="For whom; default: yourself."),
        click.option("--principal", default="", help="For a principal of this cluster."),
    ):
        command = option(command)
    return command


@certificate.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@_person_options
@output_option
@connected
def register(connection: Connection, file: Path, sid: str, principal: str, output: str) -> None:
    """Register the certificate in FILE (PEM or DER): messages signed with its key are the user's.

    The private key stays where it is. Admins register for everybody.
    """
    from qm.pb import control_pb2

    request = control_pb2.RegisterCertificateRequest(
        person=_person(sid, principal), certificate=certificate_of(file)
    )
    show_one(_registered(connection, request), output)


@certificate.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--if-not-exist", is_flag=True, help="Only if you have none yet.")
@click.option("--days", type=click.IntRange(1, 36500), default=365, show_default=True)
@click.option("--bits", type=click.Choice(["1024", "2048", "4096"]), default="2048")
@_person_options
@output_option
@connected
def internal(
    connection: Connection,
    file: Path,
    if_not_exist: bool,
    days: int,
    bits: str,
    sid: str,
    principal: str,
    output: str,
) -> None:
    """Make your internal certificate, register it, and write it with its key to FILE (PEM).

    It replaces the internal certificate that you had. The key never leaves this computer.
    """
    from qm.client.signing import new_signer
    from qm.pb import control_pb2

    if file.exists():
        raise click.UsageError(f"{file} exists: it may hold a key that is in use")
    signer = new_signer(principal or sid or "internal", int(bits), days)
    request = control_pb2.RegisterCertificateRequest(
        person=_person(sid, principal),
        certificate=signer.certificate,
        is_internal=True,
        if_not_exist=if_not_exist,
    )
    found = _registered(connection, request)
    if not found["is_kept"]:
        signer.write(file)
    show_one(found, output)


@certificate.command("list")
@_person_options
@output_option
@connected
def list_certificates(connection: Connection, sid: str, principal: str, output: str) -> None:
    """List your certificates, or those of a user."""
    _, found = _listed(connection, sid, principal)
    show_rows(map(_row, found), _COLUMNS, output)


@certificate.command()
@click.argument("digest")
@_person_options
@output_option
@connected
def show(connection: Connection, digest: str, sid: str, principal: str, output: str) -> None:
    """Show the certificate with DIGEST, as `list` prints it."""
    owner, found = _listed(connection, sid, principal)
    for one in found:
        if one.digest.hex() == digest.lower():
            show_one({"sid": owner, **_row(one), "pem": pem_text(one.certificate)}, output)
            return
    raise click.ClickException(f"{owner} has no certificate {digest}")


@certificate.command()
@click.argument("digest")
@_person_options
@yes_option
@connected
def remove(connection: Connection, digest: str, sid: str, principal: str, yes: bool) -> None:
    """Remove the certificate with DIGEST: what is signed with its key is no longer accepted."""
    from qm.pb import control_pb2

    try:
        raw = bytes.fromhex(digest)
    except ValueError:
        raise click.UsageError(f"{digest!r} is not hex") from None
    confirm(f"Remove the certificate {digest}?", yes=yes)
    request = control_pb2.RemoveCertificateRequest(person=_person(sid, principal), digest=raw)
    connection.run(lambda wire: wire.call(lambda stubs: stubs.certificates.Remove, request))


def _registered(connection: Connection, request: Any) -> dict[str, Any]:
    reply: Any = connection.run(
        lambda wire: wire.call(lambda stubs: stubs.certificates.Register, request)
    )
    return {"sid": reply.sid, "digest": reply.digest.hex(), "is_kept": bool(reply.status)}


def _listed(connection: Connection, sid: str, principal: str) -> tuple[str, list[Any]]:
    from qm.pb import control_pb2

    request = control_pb2.ListCertificatesRequest(person=_person(sid, principal))
    reply: Any = connection.run(
        lambda wire: wire.call(lambda stubs: stubs.certificates.List, request)
    )
    return reply.sid, list(reply.certificates)


def _person(sid: str, principal: str) -> Any:
    from qm.pb import control_pb2

    if sid and principal:
        raise click.UsageError("give either --sid or --principal")
    if sid:
        return control_pb2.Person(sid=sid)
    return control_pb2.Person(principal=principal) if principal else control_pb2.Person()


def _row(one: Any) -> dict[str, Any]:
    return {
        "digest": one.digest.hex(),
        "subject": one.subject,
        "issuer": one.issuer,
        "not_before": instant(one.not_before_s),
        "not_after": instant(one.not_after_s),
        "key_bits": one.key_bits,
        "is_internal": one.is_internal,
    }
