"""`qm console`: the web console of a node."""

from typing import Any

import click

from qm.cli.lib.connection import Connection, connected


@click.command()
@connected
def console(connection: Connection) -> None:
    """Print an address that signs you in to the web console.

    It is of the node that answered, holds for a minute, and signs in once: open it in a browser
    that trusts the cluster's authority. The console then does what your certificate may do.
    """
    from qm.pb import control_pb2

    async def work(wire: Any) -> Any:
        return await wire.call(lambda stubs: stubs.console.SignIn, control_pb2.SignInRequest())

    click.echo(connection.run(work).url)
