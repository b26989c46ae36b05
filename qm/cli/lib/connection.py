"""How a command finds its cluster, and the exit codes for errors of calls.

Endpoints or a context given as options, then by the environment; then the dev cluster of this
folder (`qm dev up`); then the current context (`qm context use`).
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
from click.core import ParameterSource

from qm.cli.lib.contexts import Context, find_context, read_contexts
from qm.cli.lib.output import DRY_RUN
from qm.cli.lib.preview import Preview, Shown

DEV_FOLDER: Final = ".quorate-dev"
"""Folder that `qm dev up` creates in the current one."""

# gRPC logs every closed connection on stderr; exit codes report what matters.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

CONNECT_TIMEOUT_S: Final = 3.0
_OLDER: Final = "this node runs an older version, which does not offer that"
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
    connect_s: float = CONNECT_TIMEOUT_S
    """How long it may take to reach a node."""
    is_dry: bool = False
    """Whether only to print what would be changed."""

    def at(self, endpoint: str) -> "Connection":
        """Return the way to one node of the cluster."""
        return msgspec.structs.replace(self, endpoints=(endpoint,))

    def run(self, work: "Callable[[Any], Coroutine[Any, Any, _T]]") -> _T:
        """Run a coroutine with a `Calls`; end the process with its exit code if that fails."""
        from qm.client.calls import Calls  # slow to load, and not needed for --help

        async def main() -> _T:
            wire = Calls(self.endpoints, self.tls(), self.connect_s)
            try:
                await wire.reach()
                return await work(Preview(wire) if self.is_dry else wire)
            except Shown:
                sys.exit(0)
            finally:
                await wire.close()

        return exiting(lambda: asyncio.run(main()))

    def run_each(self, work: "Callable[[Any], Coroutine[Any, Any, _T]]") -> _T | str:
        """Run it like `run`, but return the error's text when no node answers."""
        from qm.client.calls import Calls
        from qm.client.errors import Unavailable

        async def main() -> _T | str:
            wire = Calls(self.endpoints, self.tls(), self.connect_s)
            try:
                return await work(wire)
            except Unavailable as error:
                return str(error)
            finally:
                await wire.close()

        return exiting(lambda: asyncio.run(main()))

    def run_client(self, work: "Callable[[Any], Coroutine[Any, Any, _T]]") -> _T:
        """Run a coroutine with an open `Client`, whose session is a change itself."""
        assert not self.is_dry, "a client cannot be had without a change"
        from qm.client.client import Client

        async def main() -> _T:
            async with Client(self.endpoints, tls=self.tls(), connect_s=self.connect_s) as client:
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
    from qm.client.errors import (
        CallFailed,
        ClientError,
        InvalidArgument,
        NotAllowed,
        Unavailable,
    )
    from qm.names.errors import QueueNameError

    try:
        return work()
    except QueueNameError as error:
        raise click.UsageError(str(error)) from error
    except InvalidArgument as error:
        # The field is the request's, which the caller did not write.
        raise click.UsageError(str(error).removeprefix(f"{error.field}: ")) from error
    except Unavailable as error:
        _fail(error, EXIT_UNAVAILABLE)
    except NotAllowed as error:
        _fail(error, EXIT_NOT_ALLOWED)
    except CallFailed as error:
        is_older = error.status == "UNIMPLEMENTED"
        _fail(ClientError(_OLDER) if is_older else error, EXIT_REFUSED)
    except ClientError as error:
        _fail(error, EXIT_REFUSED)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    raise AssertionError("unreachable")


def connected(command: Callable[..., _T]) -> Callable[..., _T]:
    """Add the connection options to a command, which gets a `Connection` as first argument."""
    return connected_unless("")(command)


def connected_unless(flag: str) -> Callable[[Callable[..., _T]], Callable[..., _T]]:
    """Like `connected`, for a command that calls no cluster, and gets None, if `flag` is given."""
    return lambda command: _connected(command, flag)


def _connected(command: Callable[..., _T], flag: str) -> Callable[..., _T]:
    @click.option(
        "--endpoint",
        envvar="QM_ENDPOINT",
        metavar="HOST[:PORT],...",
        help="API of one or more nodes.  [env: QM_ENDPOINT; default: the dev cluster]",
    )
    @click.option(
        "--context",
        "context_name",
        envvar="QM_CONTEXT",
        metavar="NAME",
        help="A cluster by its name: `qm context`.  [env: QM_CONTEXT]",
    )
    @click.option(
        "--connect-timeout",
        envvar="QM_CONNECT_TIMEOUT",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        default=CONNECT_TIMEOUT_S,
        show_default=True,
        help="Time to reach a node.  [env: QM_CONNECT_TIMEOUT]",
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
        context_name: str | None,
        connect_timeout: float,
        tls_authority: Path | None,
        tls_certificate: Path | None,
        tls_key: Path | None,
        **options: Any,
    ) -> _T:
        files = (tls_authority, tls_certificate, tls_key)
        if options.get(flag):
            return command(None, *args, **options)
        found = _connection(_chosen(endpoint), context_name, files)
        return command(msgspec.structs.replace(found, connect_s=connect_timeout), *args, **options)

    return wrapped


_Files = tuple[Path | None, Path | None, Path | None]


def connection_of(ctx: click.Context, connect_s: float) -> Connection:
    """Return the `Connection` of a command whose line is not complete yet."""
    given = {
        name: ctx.params.get(name) or os.environ.get(f"QM_{name.upper()}")
        for name in ("endpoint", "tls_authority", "tls_certificate", "tls_key")
    }
    endpoint, *rest = given.values()
    authority, certificate, key = (Path(file) if file else None for file in rest)
    name = ctx.params.get("context_name") or os.environ.get("QM_CONTEXT")
    found = _connection(endpoint, name, (authority, certificate, key))
    return msgspec.structs.replace(found, connect_s=connect_s)


def _chosen(endpoint: str | None) -> str | None:
    """A context that the caller wrote counts for more than endpoints of the environment."""

    def is_written(parameter: str) -> bool:
        source = click.get_current_context().get_parameter_source(parameter)
        return source is ParameterSource.COMMANDLINE

    return None if is_written("context_name") and not is_written("endpoint") else endpoint


def _connection(endpoint: str | None, context_name: str | None, files: _Files) -> Connection:
    given = [file for file in files if file is not None]
    if given and len(given) < len(files):
        raise click.UsageError(
            "a certificate, its key and the authority belong together: give all three or none"
        )
    endpoints = tuple(part.strip() for part in (endpoint or "").split(",") if part.strip())
    if endpoints:
        return Connection(_endpoints(endpoints), *files)
    if context_name:
        return _of_context(find_context(read_contexts(), context_name))
    if not given:
        found = dev_connection(Path(os.environ.get("QM_DEV_FOLDER", DEV_FOLDER)))
        if found is not None:
            return found
        contexts = read_contexts()
        if contexts.current:
            return _of_context(find_context(contexts, contexts.current))
    raise click.UsageError(
        "no cluster: give --endpoint, --context, QM_ENDPOINT or QM_CONTEXT, choose one with"
        " `qm context use`, or run `qm dev up` in this folder"
    )


def changing(command: Callable[..., _T]) -> Callable[..., _T]:
    """Like `connected`, for a command that changes the cluster: with `--dry-run` it asks nothing,
    and prints the first call that would change something instead of making it.
    """

    @click.option("--dry-run", "is_dry", is_flag=True, help="Only show what would be done.")
    @functools.wraps(command)
    def wrapped(connection: Connection, *args: Any, is_dry: bool, **options: Any) -> _T:
        click.get_current_context().meta[DRY_RUN] = is_dry
        return command(msgspec.structs.replace(connection, is_dry=is_dry), *args, **options)

    return connected(wrapped)


def _endpoints(given: tuple[str, ...]) -> tuple[str, ...]:
    from qm.client.endpoints import full_endpoint

    try:
        return tuple(map(full_endpoint, given))
    except ValueError as error:
        raise click.UsageError(f"{error}") from error


def _of_context(context: Context) -> Connection:
    return Connection(
        _endpoints(context.endpoints),
        Path(context.authority) if context.authority else None,
        Path(context.certificate) if context.certificate else None,
        Path(context.key) if context.key else None,
        context.server_name,
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
