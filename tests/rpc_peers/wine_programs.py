"""Read from a node with programs on Wine: `python -m tests.rpc_peers.wine_programs`.

Wine's widl compiles the published interface definitions to stubs like MIDL's, and its rpcrt4 and
NTLM (Samba's ntlm_auth) call: `make deps-system` says what that needs. Three nodes and Wine run in
a network namespace of their own, where mappers have port 135; this needs root. The programs call
a follower.

What the interface files and programs work around is Wine 8.0's: widl ends at a union that holds
itself, misplaces arrays of pointers in structures, takes every discriminant for a long
(`DISCRIMINANT`), and in interpreted stubs (-Oicf) sends the binding handle; rpcrt4 does not align
what follows a shorter member, and gives a binding the idle connection of another account.
"""

import asyncio
import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from qm.pb import control_pb2
from tests.cluster.harness import run
from tests.rpc_peers import namespace, report
from tests.unit.api.world import Client
from tests.unit.rpc.reading import ORDERS, rpc_world, with_orders

SOURCES: Final = Path(__file__).parent / "wine"
INCLUDES: Final = "/usr/include/wine/wine/windows"
SERVER: Final = "/usr/lib/wine/wineserver"
MAPPER_PORT: Final = 135
LIMIT_S: Final = 120.0
"""For a program."""
RUN_LIMIT_S: Final = 600.0
NEEDED: Final = ("wine", "widl", "winegcc", "ntlm_auth")
INTERFACES: Final = ("queue_format", "remote_read", "qmmgmt")
PROGRAMS: Final = {
    "read_peek_move_purge": "remote_read",
    "reader": "remote_read",
    "logon": "remote_read",
    "manager": "qmmgmt",
}
"""And the interface that each calls."""
AWAY: Final = r"DIRECT=OS:elsewhere.example\private$\q"
INTEGRITY, PRIVACY = "5", "6"
NEGOTIATE, NTLM = "9", "10"
LOGONS: Final = (
    (("alice", "pw", PRIVACY, NTLM), "0"),
    (("alice", "pw", PRIVACY, NEGOTIATE), "0"),
    (("alice", "pw", INTEGRITY, NTLM), "5"),
    (("alice", "pW", PRIVACY, NTLM), "5"),
    (("bob", "pw", PRIVACY, NTLM), "c00e0025"),
    (("", "", PRIVACY, NTLM), "5"),
)
"""User, password, level and service, and the status of an open."""


DISCRIMINANT: Final = re.compile(r"0x8,(\t/\* \w+: always FC_LONG \*/\n\s*0x([0-9a-f]+),)")
"""What widl 8.0 takes for a union's discriminant; its type is in the next line."""


class Wine:
    """A Wine without a display, all of it in a folder, and programs compiled for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "WINEPREFIX": str(folder / "prefix"),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree,mshtml=;winedbg.exe=d",
        }

    async def build(self) -> None:
        """Compile interfaces to stubs, and programs with them."""
        for name in INTERFACES:
            source = str(SOURCES / f"{name}.idl")
            paths = ("-I", INCLUDES, "-I", str(SOURCES))
            await self.lines("widl", "-m64", "--win64", "-Os", "-c", "-h", *paths, source)
            made = self.folder / f"{name}_c.c"
            made.write_text(DISCRIMINANT.sub(r"0x\2,\1", made.read_text()))
        flags = ("-mno-cygwin", "-Wall", "-Werror", "-I.", "-I", str(SOURCES))
        for name, stub in PROGRAMS.items():
            sources = (str(SOURCES / f"{name}.c"), str(SOURCES / "client.c"), f"{stub}_c.c")
            await self.lines("winegcc", *flags, *sources, "-o", f"{name}.exe", "-lrpcrt4")

    async def call(self, name: str, *arguments: str, heard: "Heard | None" = None) -> list[str]:
        """Run a program; return its lines. Raises AssertionError."""
        return await self.lines("wine", f"{name}.exe.so", *arguments, heard=heard)

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        try:
            await self.lines("wine", "wineboot", "--init")
            yield
        finally:
            await self.lines("sh", "-c", f"{SERVER} --kill; {SERVER} --wait")

    async def lines(self, *command: str, heard: "Heard | None" = None) -> list[str]:
        """Run a command; `heard` is told each line. Raises AssertionError."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        found = []
        async with asyncio.timeout(LIMIT_S):
            async for raw in process.stdout:
                found.append(raw.decode(errors="replace").rstrip())
                if heard is not None:
                    await heard(found[-1])
            status = await process.wait()
        assert status == 0, "\n".join((f"{' '.join(command)}: {status}", *found))
        return found


Heard = Callable[[str], Awaitable[None]]


def sending(sender: Client) -> Heard:
    """Return what sends the messages that a program asks for: a body, or one of so many bytes."""

    async def heard(line: str) -> None:
        word, _, bodies = line.partition(" ")
        if word == "send":
            made = [bytes(int(one)) if one.isdigit() else one.encode() for one in bodies.split()]
            await sender.send(ORDERS, *made)

    return heard


_SUMMARY: Final = re.compile(r"wine (?P<name>\w+): (?P<held>\d+) of (?P<all>\d+)")


def summary(lines: list[str]) -> dict[str, int]:
    """Return how many of a program's checks held, by its last line. Raises AssertionError."""
    print(lines[-1])
    found = _SUMMARY.match(lines[-1])
    assert found is not None, lines
    assert found["held"] == found["all"], lines[-1]
    return {f"wine_{found['name']}_held_count": int(found["held"])}


async def check(wine: Wine, host: str, sender: Client) -> dict[str, int]:
    """Run everything; return what held. Raises AssertionError."""
    await with_orders(sender, b"one", b"two", b"three")
    figures = summary(await wine.call("read_peek_move_purge", host))
    figures |= summary(await wine.call("reader", host, heard=sending(sender)))
    await sender.send(ORDERS, b"one", b"two")
    await sender.send(AWAY, b"out")
    figures |= summary(await wine.call("manager", host))
    acl = [control_pb2.Ace(principal="alice", rights=["receive_message", "peek_message"])]
    name = control_pb2.QueueName(name=r".\private$\orders")
    await sender.queues.SetAcl(control_pb2.SetAclRequest(queue=name, entries=acl))
    for logon, wanted in LOGONS:
        (found,) = await wine.call("logon", host, *logon)
        assert found == f"status {wanted}", (logon, found)
    print(f"wine logon: {len(LOGONS)} as they should be")
    return figures | {"wine_logon_held_count": len(LOGONS)}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wine = Wine(Path(folder))
        await wine.build()
        async with rpc_world(3, mapper_port=MAPPER_PORT) as made, wine.started():
            host = (await made.harness.followers())[0].host
            async with made.client(await made.leader()) as sender:
                report.write("test-rpc", await check(wine, host, sender))


if __name__ == "__main__":
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        print(f"wine: left out without {', '.join(missing)}; make deps-system says what to install")
        sys.exit()
    namespace.enter("tests.rpc_peers.wine_programs", sys.argv[1:])
    run(main(), RUN_LIMIT_S)
