"""`qm manager keys`: the key pairs by which bodies are encrypted for this queue manager."""

from __future__ import annotations

from typing import Any

import click

from qm.cli.lib.connection import Connection, connected
from qm.cli.lib.output import confirm, instant, output_option, show_one, yes_option

_DAY_S = 24 * 3600


@click.group()
def keys() -> None:
    """Show and replace the queue manager's own key pairs."""


@keys.command()
@output_option
@connected
def show(connection: Connection, output: str) -> None:
    """Show the public keys that senders need, and which older ones are still accepted."""
    from qm.pb import control_pb2

    request = control_pb2.GetKeysRequest()
    found = connection.run(lambda wire: wire.call(lambda stubs: stubs.keys.GetKeys, request))
    show_one(_row(found), output)


@keys.command()
@click.option(
    "--accept-days",
    type=click.IntRange(0, 366),
    default=30,
    show_default=True,
    help="How long bodies that were encrypted for the present keys are still decrypted.",
)
@yes_option
@output_option
@connected
def rotate(connection: Connection, accept_days: int, yes: bool, output: str) -> None:
    """Make new key pairs for every provider. Senders need the new public keys within the time that
    the old ones are accepted.
    """
    from qm.pb import control_pb2

    confirm(
        "Replace the queue manager's keys? Every sender that encrypts for it needs the new ones.",
        yes=yes,
    )
    request = control_pb2.ReplaceKeysRequest(accepted_s=accept_days * _DAY_S)
    found = connection.run(lambda wire: wire.call(lambda stubs: stubs.keys.ReplaceKeys, request))
    show_one(_row(found), output)


def _row(found: Any) -> dict[str, Any]:
    return {
        "generation": found.generation,
        "since": instant(found.since_ms // 1000),
        "accepted": [
            {"generation": one.generation, "until": instant(one.until_ms // 1000)}
            for one in found.accepted
        ],
        "keys": [
            {
                "provider": one.provider,
                "purpose": "signatures" if one.is_for_signatures else "exchange",
                "bits": one.bits,
                "public_key": one.blob.hex(),
            }
            for one in found.keys
        ],
    }
