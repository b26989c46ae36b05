r"""Names on the command line: of queues, with hints and completion; of nodes and scenarios.

A path name is full of characters that a shell takes away: `.\private$\orders` without quotes
arrives as `.private$orders`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem
from typing_extensions import override

from qm.cli.lib.connection import Connection, connection_of

COMPLETION_CONNECT_S: Final = 1.0
COMPLETED_MAX: Final = 200
_PATTERN: Final = frozenset("*?[")
_PRIVATE: Final = "private$"


class QueueName(click.ParamType):  # type: ignore[type-arg]  # generic in stubs only
    """A queue's path name or format name; with `patterns` also a shell pattern."""

    name = "queue"

    def __init__(self, *, patterns: bool = False) -> None:
        self._patterns = patterns

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if self._patterns and _PATTERN & set(text):
            return text
        if text and (hint := hint_for(text)):
            self.fail(f"{text!r} is not the name of a queue: {hint}", param, ctx)
        return text

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completed(ctx, incomplete, _queue_names)


def hint_for(name: str) -> str:
    """Return what the writer may have meant; "" for a name that may be one."""
    if "\\" in name or "=" in name:
        return ""
    at = name.lower().find(_PRIVATE)
    if at >= 0:
        rest = name[at + len(_PRIVATE) :]
        host = name[:at] or "."
        return f"in single quotes the shell leaves it alone: '{host}\\private$\\{rest}'"
    return f"did you mean '.\\private$\\{name}', or '.\\{name}' for a public queue?"


def completed(
    ctx: click.Context, incomplete: str, ask: Callable[[Connection], Iterable[str]]
) -> list[CompletionItem]:
    """Return what the cluster knows that begins so; nothing, quickly, if it cannot be asked."""
    try:
        names = ask(connection_of(ctx, COMPLETION_CONNECT_S))
    except (Exception, SystemExit):
        return []
    folded = incomplete.lower()
    found = [name for name in names if name.lower().startswith(folded)]
    return [CompletionItem(_for_shell(name)) for name in found[:COMPLETED_MAX]]


def complete_nodes(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete names of members."""
    return completed(ctx, incomplete, _node_names)


def complete_scenarios(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete names of drills."""
    from qm.drill.scenarios.catalogue import SCENARIOS

    return [CompletionItem(name) for name in SCENARIOS if name.startswith(incomplete)]


def _queue_names(connection: Connection) -> list[str]:
    from qm.pb import control_pb2 as pb

    async def names(wire: Any) -> list[str]:
        request = pb.ListQueuesRequest(page_size=COMPLETED_MAX)
        page = await wire.call(lambda stubs: stubs.queues.ListQueues, request)
        return [".\\" + queue.path_name.partition("\\")[2] for queue in page.queues]

    return connection.run(names)


def _node_names(connection: Connection) -> list[str]:
    from qm.pb import control_pb2 as pb

    async def names(wire: Any) -> list[str]:
        status = await wire.call(lambda stubs: stubs.cluster.GetStatus, pb.GetStatusRequest())
        return [member.name for member in status.members]

    return connection.run(names)


def _for_shell(name: str) -> str:
    """Quote it for bash, which inserts what it is given; other shells quote by themselves."""
    is_bash = os.environ.get("_QM_COMPLETE", "").startswith("bash")
    words = os.environ.get("COMP_WORDS", "").split("\n")
    at = os.environ.get("COMP_CWORD", "")
    word = words[int(at)] if at.isdigit() and int(at) < len(words) else ""
    return f"'{name}'" if is_bash and "\\" in name and not word.startswith(("'", '"')) else name
