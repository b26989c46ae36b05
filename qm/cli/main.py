"""The entry point `qm`: one group of commands per noun, each in its own module, loaded when used.

Exit codes of every command: 0 success, 1 success but a problem was found, 2 wrong usage; for those
that call a cluster also: 3 it refused, 4 no node answered, 5 the caller is not allowed to. Commands
with other codes list them in their help.
"""

import io
import sys
from importlib import import_module
from typing import Final

import click
from typing_extensions import override

# Noun -> module and name of its group or command. Modules are imported when needed, so that one
# noun's dependencies do not slow down the others.
_NOUNS: Final = {
    "acl": "qm.cli.queues.acl:acl",
    "backup": "qm.cli.cluster.backup:backup",
    "bench": "qm.cli.cluster.bench:bench",
    "bundle": "qm.cli.cluster.bundle:bundle",
    "audit": "qm.cli.archive.audit:audit",
    "certificate": "qm.cli.people.certificate:certificate",
    "check": "qm.cli.cluster.check:check",
    "client": "qm.cli.queues.client:client",
    "cluster": "qm.cli.cluster.cluster:cluster",
    "compact": "qm.cli.archive.compact:compact",
    "completion": "qm.cli.completion:completion",
    "config": "qm.cli.cluster.config:config",
    "console": "qm.cli.cluster.console:console",
    "deadletter": "qm.cli.queues.copies:deadletter",
    "context": "qm.cli.cluster.context:context",
    "defs": "qm.cli.queues.defs:defs",
    "demo": "qm.cli.drills.demo:demo",
    "dev": "qm.cli.cluster.dev:dev",
    "directory": "qm.cli.people.directory:directory",
    "drill": "qm.cli.drills.drill:drill",
    "events": "qm.cli.cluster.watch:events",
    "journal": "qm.cli.queues.copies:journal",
    "log": "qm.cli.cluster.log:log",
    "manager": "qm.cli.queues.manager:manager",
    "message": "qm.cli.queues.message:message",
    "node": "qm.cli.cluster.node:node",
    "outgoing": "qm.cli.queues.outgoing:outgoing",
    "packet": "qm.cli.packets.packet:packet",
    "peer": "qm.cli.queues.peer:peer",
    "pki": "qm.cli.cluster.pki:pki",
    "queue": "qm.cli.queues.queue:queue",
    "report": "qm.cli.cluster.report:report",
    "rpc": "qm.cli.windows.rpc:rpc",
    "search": "qm.cli.queues.search:search",
    "session": "qm.cli.queues.session:session",
    "top": "qm.cli.cluster.watch:top",
    "transaction": "qm.cli.queues.transaction:transaction",
    "user": "qm.cli.people.account:user",
}


class _Nouns(click.Group):
    """Finds each noun's group in its module."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_NOUNS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _NOUNS:
            return None
        module, name = _NOUNS[cmd_name].split(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


def _show_version(ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    if not is_wanted or ctx.resilient_parsing:
        return
    from importlib import metadata  # slow to load, and only needed here

    try:
        version = metadata.version("quorate")
    except metadata.PackageNotFoundError:
        version = "run from its source tree"
    click.echo(f"qm, {version}")
    ctx.exit()


@click.group(cls=_Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Quorate: a distributed queue manager that speaks MSMQ."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character gets an escape sequence, not a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
