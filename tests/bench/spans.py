"""Spans around the steps of an entry, in a node that a benchmark starts; products have none.

`install` wraps the functions that STEPS names before the node is made. A span takes the processor
time of its thread without that of spans inside it; a mark is the time at which an entry of the log,
by its index, reaches a point. Marks of several processes of one machine have one clock.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from time import monotonic_ns, thread_time_ns
from typing import Any, Final

import msgspec

from raft.types import Append, AppendReply, Envelope

MARKS_MAX: Final = 200_000
"""Of each name; further ones are dropped."""
STEPS: Final = (
    ("session: chunk read", "qm.edge.tcp.connection", "Connection.data_received"),
    ("session: packets cut and checked", "qm.session.session", "Session.receive"),
    ("session: intake", "qm.edge.relay.session_intake", "SessionIntake.arrived"),
    ("session: SessionAck written", "qm.edge.tcp.connection", "Connection._write"),
    ("session: positions settled", "qm.edge.tcp.connection", "Connection.commit"),
    ("edge: batch cut, sent", "qm.edge.relay.relay", "Relay._pump"),
    ("edge: batch encoded", "qm.edge.batches", "Batch.payload"),
    ("edge: outcome", "qm.edge.relay.relay", "Relay.on_outcome"),
    ("leader: batch taken", "qm.node.relay.leader_stream", "LeaderStream.send"),
    ("leader: frame of an edge taken", "qm.node.relay.edge_stream", "RemoteStream._take"),
    ("leader: submitted", "raft.driver", "Driver.submit"),
    ("driver: turn", "raft.driver", "Driver._turn"),
    ("driver: ticks", "raft.driver", "Driver._count_ticks"),
    ("driver: proposals closed", "raft.proposals", "Proposals.submit"),
    ("driver: results handed out", "raft.proposals", "Proposals.applied"),
    ("consensus: propose", "raft.replica", "Replica.propose"),
    ("consensus: messages received", "raft.replica", "Replica.receive"),
    ("consensus: Ready", "raft.core.core", "Core.ready"),
    ("consensus: poll", "raft.replica", "Replica.poll"),
    ("log: append", "raft.log.log", "Log.append"),
    ("log: sync begun", "raft.log.log", "Log.begin_sync"),
    ("log: sync ended", "raft.log.log", "Log.end_sync"),
    ("log: fdatasync, in its thread", "raft.log.group_commit", "Sync.run"),
    ("frames: queued", "raft.transport.stream_transport", "StreamTransport.send"),
    ("frames: encoded", "raft.transport.wire_format", "FrameEncoder.encode"),
    ("frames: written, with TLS", "raft.transport.direct", "FrameConnection.write_now"),
    ("frames: cut", "raft.transport.direct", "FrameConnection.data_received"),
    ("frames: decoded", "raft.transport.wire_format", "FrameDecoder.decode"),
    ("frames: handed over", "raft.transport.peer", "Peer._take"),
    ("apply: model", "qm.model.machine", "Machine.apply"),
    ("apply: store", "qm.store.store", "Store.apply"),
    ("apply: rows, digest, database", "qm.store.store", "Store.settle"),
    ("listeners", "qm.node.replica.listeners", "Listeners._tell"),
)
"""What a span is called, and the function that it surrounds."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.inner_ns: list[int] = []
        """Of the open spans: what spans inside them took."""


class Recorder:
    """What a process has recorded since `begin`."""

    def __init__(self) -> None:
        self.spans: dict[str, list[int]] = {}
        """Count and processor time in ns."""
        self.marks: dict[str, list[tuple[int, int]]] = {}
        """Entries of the log, by index, and when they reached a point."""
        self._thread = _Thread()
        self._read_ns = 0
        """When the first chunk was read of those that no entry has taken yet."""

    def begin(self) -> None:
        """Forget what was recorded."""
        for span in self.spans.values():
            span[:] = (0, 0)
        for marks in self.marks.values():
            marks.clear()

    def span(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a span around it."""
        span, thread = self.spans.setdefault(name, [0, 0]), self._thread

        def spanned(*arguments: Any, **named: Any) -> Any:
            inner_ns = thread.inner_ns
            inner_ns.append(0)
            began_ns = thread_time_ns()
            try:
                return function(*arguments, **named)
            finally:
                spent_ns = thread_time_ns() - began_ns
                span[0] += 1
                span[1] += spent_ns - inner_ns.pop()
                if inner_ns:
                    inner_ns[-1] += spent_ns

        return spanned

    def mark(self, name: str, index: int, at_ns: int = 0) -> None:
        """Note that an entry reaches a point now, or did so at `at_ns`."""
        marks = self.marks.setdefault(name, [])
        if len(marks) < MARKS_MAX:
            marks.append((index, at_ns or monotonic_ns()))

    # Marks around steps

    def read(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A chunk is read from a sender."""

        def marked(connection: Any, data: bytes) -> None:
            self._read_ns = self._read_ns or monotonic_ns()
            function(connection, data)

        return marked

    def proposed(self, function: Callable[..., int]) -> Callable[..., int]:
        """An entry gets its index."""

        def marked(replica: Any, data: bytes) -> int:
            index = function(replica, data)
            if self._read_ns:
                self.mark("read", index, self._read_ns)
                self._read_ns = 0
            self.mark("proposed", index)
            return index

        return marked

    def appended(self, function: Callable[..., None]) -> Callable[..., None]:
        """Entries are written to the log."""

        def marked(log: Any, hard_state: Any, entries: Sequence[Any]) -> None:
            function(log, hard_state, entries)
            for entry in entries:
                self.mark("written", entry.index)

        return marked

    def synced(self, function: Callable[..., None]) -> Callable[..., None]:
        """The thread that syncs begins, and ends."""

        def marked(sync: Any) -> None:
            self.mark("sync_began", sync.index)
            function(sync)
            self.mark("sync_ended", sync.index)

        return marked

    def noticed(self, function: Callable[..., int]) -> Callable[..., int]:
        """The loop hears of a sync."""

        def marked(log: Any, sync: Any) -> int:
            self.mark("sync_noticed", sync.index)
            return function(log, sync)

        return marked

    def sent(self, function: Callable[..., bytes]) -> Callable[..., bytes]:
        """A frame is about to be written."""

        def marked(encoder: Any, envelopes: Sequence[Envelope]) -> bytes:
            frame = function(encoder, envelopes)
            self._mark_envelopes("sent", envelopes)
            return frame

        return marked

    def received(self, function: Callable[..., list[Envelope]]) -> Callable[..., list[Envelope]]:
        """A frame was read."""

        def marked(decoder: Any, frame: bytes) -> list[Envelope]:
            envelopes = function(decoder, frame)
            self._mark_envelopes("received", envelopes)
            return envelopes

        return marked

    def applied(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Entries are applied."""

        def marked(store: Any, entries: Sequence[Any]) -> Any:
            began_ns = monotonic_ns()
            outcomes = function(store, entries)
            for entry in entries:
                self.mark("apply_began", entry.index, began_ns)
                self.mark("apply_ended", entry.index)
            return outcomes

        return marked

    def answered(self, function: Callable[..., None]) -> Callable[..., None]:
        """The edge hears of an outcome; what it then writes are the SessionAcks."""

        def marked(relay: Any, number: int, index: int, outcome: Any) -> None:
            self.mark("outcome", index)
            function(relay, number, index, outcome)
            self.mark("acknowledged", index)

        return marked

    def _mark_envelopes(self, verb: str, envelopes: Sequence[Envelope]) -> None:
        for one in envelopes:
            peer = one.to if verb == "sent" else one.sender
            if type(one.body) is Append and one.body.entries:
                for entry in one.body.entries:
                    self.mark(f"append_{verb} {peer}", entry.index)
            elif type(one.body) is AppendReply and one.body.match_index:
                self.mark(f"reply_{verb} {peer}", one.body.match_index)


def install(recorder: Recorder) -> None:
    """Surround the steps of this process with spans and marks."""
    marks = {
        "Connection.data_received": recorder.read,
        "Replica.propose": recorder.proposed,
        "Log.append": recorder.appended,
        "Sync.run": recorder.synced,
        "Log.end_sync": recorder.noticed,
        "FrameEncoder.encode": recorder.sent,
        "FrameDecoder.decode": recorder.received,
        "Store.apply": recorder.applied,
        "Relay.on_outcome": recorder.answered,
    }
    for name, module, place in STEPS:
        owner_name, _, method = place.partition(".")
        owner = getattr(import_module(module), owner_name)
        function = recorder.span(name, getattr(owner, method))
        marked = marks.get(place)
        setattr(owner, method, function if marked is None else marked(function))


class Report(msgspec.Struct):
    """What a node answers."""

    spans: dict[str, tuple[int, int]]
    marks: dict[str, list[tuple[int, int]]]


def serve(recorder: Recorder, path: Path) -> None:
    """Answer `begin` and `end` on a socket, in a thread that waits otherwise."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def run() -> None:
        while True:
            caller, _ = listener.accept()
            with caller, caller.makefile("rw") as lines:
                if lines.readline() == "begin\n":
                    recorder.begin()
                    lines.write("{}\n")
                else:
                    lines.write(json.dumps({"spans": recorder.spans, "marks": recorder.marks}))
                    lines.write("\n")

    threading.Thread(target=run, name="spans", daemon=True).start()


def socket_of(pid: int) -> Path:
    """Return where a node answers."""
    return Path(os.environ[FOLDER]) / f"{pid}.spans"


FOLDER: Final = "QUORATE_BENCH_SPANS"
"""Environment: the folder of the sockets."""


def ask(pid: int, what: str) -> str:
    """Ask a node; return its line."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(socket_of(pid)))
        with caller.makefile("rw") as lines:
            lines.write(f"{what}\n")
            lines.flush()
            return lines.readline()


def begin(pid: int) -> None:
    """Let a node forget what it recorded."""
    ask(pid, "begin")


def report(pid: int) -> Report:
    """Return what a node recorded since."""
    return msgspec.json.decode(ask(pid, "end"), type=Report)
