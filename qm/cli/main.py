"""The entry point `qm`: one group of commands per noun, each in its own module, loaded when used.

Exit codes of every command: 0 done, 1 done and something was found wrong, 2 wrong usage; and of
those that ask a cluster: 3 it refused, 4 no node answered, 5 the caller may not. Commands that have
others say so in their help.
"""

import io
import sys
from importlib import import_module
from typing import Final

import click

# Noun -> module and name of its group or command. Modules are imported late, so that one noun's
# dependencies do not slow down the others.
_NOUNS: Final = {
    "acl": "qm.cli.acl:acl",
    "backup": "qm.cli.backup:backup",
    "bench": "qm.cli.bench:bench",
    "bundle": "qm.cli.bundle:bundle",
    "audit": "qm.cli.audit:audit",
    "check": "qm.cli.check:check",
    "client": "qm.cli.client:client",
    "cluster": "qm.cli.cluster:cluster",
    "compact": "qm.cli.compact:compact",
    "completion": "qm.cli.completion:completion",
    "config": "qm.cli.config:config",
    "deadletter": "qm.cli.kept:deadletter",
    "defs": "qm.cli.defs:defs",
    "demo": "qm.cli.demo:demo",
    "dev": "qm.cli.dev:dev",
    "drill": "qm.cli.drill:drill",
    "events": "qm.cli.watching:events",
    "journal": "qm.cli.kept:journal",
    "log": "qm.cli.log:log",
    "manager": "qm.cli.manager:manager",
    "message": "qm.cli.message:message",
    "node": "qm.cli.node:node",
    "outgoing": "qm.cli.outgoing:outgoing",
    "packet": "qm.cli.packet:packet",
    "pki": "qm.cli.pki:pki",
    "queue": "qm.cli.queue:queue",
    "top": "qm.cli.watching:top",
    "transaction": "qm.cli.transaction:transaction",
}


class _Nouns(click.Group):
    """Finds each noun's group in its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_NOUNS)

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
    from importlib import metadata  # slow to load, and wanted here only

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
        # A terminal that cannot show a character gets its escape, not a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
