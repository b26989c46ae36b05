"""`qm session`: live sessions with other queue managers, against a real node."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import click
import pytest
import yaml
from click.testing import CliRunner

from qm.cli.main import main
from qm.cli.queues.session import _row, _show
from qm.names.guid import guid_text
from qm.node.config.schema import MSMQ_PORT
from qm.pb import control_pb2 as pb
from qm.session import AcksReceived, Role, Session, SessionConfig
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.drills.processes import until
from tests.unit.cli.test_nouns import USAGE, WAIT_S, Qm
from tests.unit.client.threaded import threaded_node
from tests.unit.model.world import packet

SOURCE = b"LIVE" * 4
QUIET = b"\xab" * 16
HANDSHAKE_BYTES = 572 + 32
HOSTILE = "\x1b]0;owned\x07\u202e\r\nforged"
QUEUE = DirectQueueFormatName("OS:QUORATE\\private$\\sessions")


@pytest.fixture(scope="module")
def qm() -> Iterator[Qm]:
    with threaded_node() as (endpoint, tls):
        made = Qm(endpoint, tls)
        made("queue", "create", ".\\private$\\sessions")
        yield made


class Peer:
    """Another queue manager, which keeps its session."""

    def __init__(self, qm: Qm, guid: bytes) -> None:
        host = qm.endpoint.partition(":")[0]
        self.session = Session(SessionConfig(), Role.INITIATOR, guid, time.monotonic())
        self.connection = socket.create_connection((host, MSMQ_PORT), WAIT_S)
        self.guid = guid
        self.sent = self.received = self.number = 0
        self.acknowledged = 0
        while not self.session.room:
            self._exchange()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def deliver(self, count: int, size: int) -> None:
        """Send messages, and wait until they are acknowledged."""
        for _ in range(count):
            self.number += 1
            raw = packet(self.number, to=QUEUE, source_queue_manager=self.guid, body=b"x" * size)
            self.session.offer([self.number], [raw])
        self._write()
        while self.acknowledged < self.number:
            self._exchange()

    def _write(self) -> None:
        while data := self.session.take_outgoing(time.monotonic()):
            self.connection.sendall(data)
            self.sent += len(data)

    def _exchange(self) -> None:
        self._write()
        data = self.connection.recv(1 << 16)
        assert data, "the node ended the session"
        self.received += len(data)
        self.session.receive(data, time.monotonic())
        while (event := self.session.next_event()) is not None:
            if isinstance(event, AcksReceived):
                self.acknowledged += len(event.released)
        self._write()


def test_sessions_are_listed_with_what_they_carried(qm: Qm) -> None:
    assert qm.json("session", "list") == []
    with Peer(qm, SOURCE) as busy, Peer(qm, QUIET):
        busy.deliver(7, 2_000)

        def listed() -> Any:
            return qm.json("session", "list")

        def is_counted(rows: Any) -> bool:
            return (rows[0]["bytes_in"], rows[0]["bytes_out"]) == (busy.sent, busy.received)

        one, other = until(listed, is_counted, WAIT_S)
        assert one["queue_manager"] == guid_text(SOURCE)
        assert (one["direction"], one["open"], one["node"]) == ("incoming", True, "n1")
        assert (one["messages_in"], one["messages_out"]) == (7, 0)
        assert one["bytes_in"] > 7 * 2_000
        assert one["since"].endswith("Z")
        assert (other["messages_in"], other["bytes_in"]) == (0, HANDSHAKE_BYTES)
        in_yaml = yaml.safe_load(qm("session", "list", "-o", "yaml").stdout)[0]
        assert in_yaml.keys() == one.keys()
        assert in_yaml["number"] == one["number"]

        text = qm("session", "list", "--sort", "messages_in").stdout
        assert text.index(guid_text(QUIET)) < text.index(guid_text(SOURCE))
        assert "MESSAGES IN" in text
        assert "PER S" not in text
        (first, _) = qm.json("session", "list", "--sort", "-queue_manager")
        assert first["queue_manager"] == max(guid_text(SOURCE), guid_text(QUIET))

        for name in (guid_text(SOURCE).lower(), f"{{{guid_text(SOURCE)}}}"):
            (found,) = qm.json("session", "list", "--peer", name)
            assert found["queue_manager"] == guid_text(SOURCE)
        assert len(qm.json("session", "list", "--peer", "127.0.0.1")) == 2
        assert qm.json("session", "list", "--peer", "2001:db8::1") == []
        cut = qm("session", "list", "--limit", "1", "-o", "json")
        assert [row["queue_manager"] for row in json.loads(cut.stdout)] == [guid_text(SOURCE)]
        assert cut.stderr.startswith("and 1 more")
        assert_completed(qm)
    until(listed, lambda rows: not rows, WAIT_S)


def assert_completed(qm: Qm) -> None:
    def completed(*words: str) -> list[str]:
        environment = qm.environment | {
            "_QM_COMPLETE": "zsh_complete",
            "COMP_WORDS": " ".join(("qm", "session", "list", *words)),
            "COMP_CWORD": str(len(words) + 2),
        }
        result = CliRunner().invoke(main, [], env=environment, prog_name="qm")
        return result.stdout.splitlines()[1::3]

    peers = [guid_text(SOURCE), guid_text(QUIET)]
    assert completed("--peer", "") == ["127.0.0.1", *peers]
    assert completed("--peer", peers[0][:4].lower()) == peers[:1]
    columns = ["bytes_in", "bytes_out", "bytes_in_per_s", "bytes_out_per_s"]
    assert completed("--sort", "bytes_") == columns


def test_rates_are_of_two_readings(qm: Qm) -> None:
    command = ("session", "list", "--watch", "0.2", "--sort", "-bytes_in_per_s", "-o", "json")
    with Peer(qm, SOURCE) as busy, Peer(qm, QUIET), watching(qm, *command) as readings:
        assert [row["bytes_in_per_s"] for row in next(readings)] == [None, None]
        busy.deliver(5, 1_000)
        total = 0.0
        while not total:
            one, other = next(readings)
            total = one["messages_in_per_s"]
        assert one["queue_manager"] == guid_text(SOURCE)
        assert one["bytes_in_per_s"] > 1_000 * one["messages_in_per_s"]
        assert 0 < one["messages_in_per_s"] <= 5 / 0.2
        assert one["messages_out_per_s"] == 0.0
        assert other["bytes_in_per_s"] == other["bytes_out_per_s"] == 0.0
        while next(readings)[0]["bytes_in_per_s"]:
            pass


INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("qm", run_name="__main__", alter_sys=True)
"""
"""Where tests run in the background of a shell, processes begin with SIGINT ignored."""


@contextmanager
def watching(qm: Qm, *arguments: str) -> Iterator[Iterator[Any]]:
    """Run it as a process; yield what it prints, one reading after another."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *arguments],
        env=qm.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None

    def readings(lines: Iterator[str]) -> Iterator[Any]:
        text = ""
        for line in lines:
            text += line
            if line == "]\n":
                yield json.loads(text)
                text = ""

    with process.stdout:
        try:
            yield readings(iter(process.stdout))
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0


def test_what_is_wrong_is_said(qm: Qm) -> None:
    unknown = qm("session", "list", "--sort", "colour", exit_code=USAGE)
    assert "these are: address, queue_manager" in unknown.stderr
    early = qm("session", "list", "--sort", "bytes_in_per_s", exit_code=USAGE)
    assert "add --watch" in early.stderr
    for peer in (HOSTILE, "n1", "127.0.0.256", "1" * 10_000):
        refused = qm("session", "list", "--peer", peer, exit_code=USAGE)
        assert "neither an IP address nor a GUID" in refused.stderr
        assert not {"\x1b", "\x07", "\u202e"} & set(refused.stderr)
    qm("session", "list", "--limit", "1001", exit_code=USAGE)


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_hostile_names_stay_one_harmless_line(output: str) -> None:
    found = pb.PeerSession(node=HOSTILE, address=HOSTILE, queue_manager=b"\x1b\x07" * 8)
    reply = pb.ListSessionsReply(sessions=[found], silent_nodes=[HOSTILE], left_out=3)

    @click.command()
    def show() -> None:
        _show(list(map(_row, reply.sessions)), reply, is_watched=True, output=output)

    said = CliRunner().invoke(show, catch_exceptions=False)
    assert not {"\x1b", "\x07", "\r"} & set(said.stdout + said.stderr)
    assert said.stderr.splitlines()[0].startswith("and 3 more")
    assert len(said.stderr.splitlines()) == 2
    if output == "table":
        assert len(said.stdout.splitlines()) == 2
    if output == "json":
        assert json.loads(said.stdout)[0]["address"] == HOSTILE
