"""How a command finds its cluster, and the exit codes for errors of calls.

Options first, then environment variables, then the dev cluster of the current folder (`qm dev up`).
"""

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

DEV_FOLDER: Final = ".quorate-dev"
"""Folder that `qm dev up` creates in the current one."""

# gRPC logs every closed connection on stderr; exit codes report what matters.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

EXIT_REFUSED: Final = 3
EXIT_UNAVAILABLE: Final = 4
EXIT_NOT_ALLOWED: Final = 5

_T = TypeVar("_T")


class Connection(msgspec.Struct, frozen=True):
    """How to reach a cluster."""

    endpoints: tuple[str, ...]
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""
    """Name expected in the nodes' certificates instead of the endpoints' hosts."""

    def run(self, work: "Callable[[Any], Coroutine[Any, Any, _T]]") -> _T:
        """Run a coroutine with a `Calls`; end the process with its exit code if that fails."""
        from qm.client.calls import Calls  # slow to load, and not needed for --help

        async def main() -> _T:
            wire = Calls(self.endpoints, self.tls())
            try:
                return await work(wire)
            finally:
                await wire.close()

        return exiting(lambda: asyncio.run(main()))

    def run_client(self, work: "Callable[[Any], Coroutine[Any, Any, _T]]") -> _T:
        """Run a coroutine with an open `Client`."""
        from qm.client.client import Client

        async def main() -> _T:
            async with Client(self.endpoints, tls=self.tls()) as client:
                return await work(client)

        return exiting(lambda: asyncio.run(main()))

    def tls(self) -> Any:
        """Return the `Tls` of the three files, None without them."""
        from qm.client.calls import Tls

        if self.authority is None or self.certificate is None or self.key is None:
            return None
        return Tls(self.authority, self.certificate, self.key, self.server_name)


def exiting(work: Callable[[], _T]) -> _T:
    """Run it; on failure print the error to stderr and exit with the documented code."""
    from qm.client.errors import ClientError, InvalidArgument, NotAllowed, Unavailable
    from qm.names.errors import QueueNameError

    try:
        return work()
    except QueueNameError as error:
        raise click.UsageError(str(error)) from error
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from error
    except Unavailable as error:
        _fail(error, EXIT_UNAVAILABLE)
    except NotAllowed as error:
        _fail(error, EXIT_NOT_ALLOWED)
    except ClientError as error:
        _fail(error, EXIT_REFUSED)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    raise AssertionError("unreachable")


def connected(command: Callable[..., _T]) -> Callable[..., _T]:
    """Add the connection options to a command, which gets a `Connection` as first argument."""

    @click.option(
        "--endpoint",
        envvar="QM_ENDPOINT",
        metavar="HOST:PORT[,...]",
        help="API of one or more nodes.  [env: QM_ENDPOINT; default: the dev cluster]",
    )
    @click.option(
        "--tls-authority",
        envvar="QM_TLS_AUTHORITY",
        type=click.Path(path_type=Path, dir_okay=False),
        help="PEM file that signs the nodes.  [env: QM_TLS_AUTHORITY]",
    )
    @click.option(
        "--tls-certificate",
        envvar="QM_TLS_CERTIFICATE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="PEM file of the caller.  [env: QM_TLS_CERTIFICATE]",
    )
    @click.option(
        "--tls-key",
        envvar="QM_TLS_KEY",
        type=click.Path(path_type=Path, dir_okay=False),
        help="PEM file of the caller's key.  [env: QM_TLS_KEY]",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        endpoint: str | None,
        tls_authority: Path | None,
        tls_certificate: Path | None,
        tls_key: Path | None,
        **options: Any,
    ) -> _T:
        connection = _connection(endpoint, tls_authority, tls_certificate, tls_key)
        return command(connection, *args, **options)

    return wrapped


def _connection(
    endpoint: str | None, authority: Path | None, certificate: Path | None, key: Path | None
) -> Connection:
    given = [file for file in (authority, certificate, key) if file is not None]
    if given and len(given) < 3:
        raise click.UsageError(
            "a certificate, its key and the authority belong together: give all three or none"
        )
    endpoints = tuple(part for part in (endpoint or "").split(",") if part)
    if endpoints:
        return Connection(endpoints, authority, certificate, key)
    if not given:
        found = dev_connection(Path(os.environ.get("QM_DEV_FOLDER", DEV_FOLDER)))
        if found is not None:
            return found
    raise click.UsageError(
        "no cluster: give --endpoint or QM_ENDPOINT, or run `qm dev up` in this folder"
    )


def dev_connection(folder: Path, principal: str = "admin") -> Connection | None:
    """Return how to reach the dev cluster of a folder, None if there is none."""
    from qm.node.dev.layout import Layout
    from qm.node.upkeep.pki import AUTHORITY_CERTIFICATE

    layout = Layout(folder)
    endpoints = tuple(node.api for node in layout.nodes())
    if not endpoints:
        return None
    pki = layout.pki
    return Connection(
        endpoints, pki / AUTHORITY_CERTIFICATE, pki / f"{principal}.pem", pki / f"{principal}.key"
    )


def _fail(error: Exception, code: int) -> None:
    click.echo(f"Error: {error}", err=True)
    sys.exit(code)
