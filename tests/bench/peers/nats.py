"""NATS JetStream: a stream with three replicas in files, which are not synced per message."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.bench.cluster_nodes import cpu_s
from tests.bench.peers.gap import longest_gap_ms
from tests.bench.peers.measure import (
    WARM_UP,
    WINDOW,
    Rate,
    attempts,
    confirmed,
    connect,
    read,
    require,
)

NODES: Final = 3
_CLIENT_PORT: Final = 24_222
_ROUTE_PORT: Final = 26_222
_ACK: Final = b"MSG ack "
_END: Final = b"\r\n"
_STREAM: Final = {"name": "Q", "subjects": ["q"], "storage": "file", "num_replicas": NODES}


class JetStream:
    """Three servers with one stream, as long as the context lasts."""

    def __init__(self) -> None:
        self._program = require("nats-server", "nats-server")

    def __enter__(self) -> "JetStream":
        self._folder = tempfile.TemporaryDirectory(prefix="quorate-peer-nats-")
        self._servers = [self._start(number) for number in range(NODES)]
        self._connect(0)
        for _ in attempts():
            if "error" not in self._ask("CREATE", _STREAM):
                break
        self._leader()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            server.wait()
        self._folder.cleanup()

    def publish(self, messages: int, size: int, window: int = WINDOW) -> Rate:
        """Publish with `window` messages unacknowledged, until all are stored."""
        body = os.urandom(size)
        frame = b"PUB q ack %d\r\n%b\r\n" % (size, body)
        self._publish(frame, WARM_UP, WINDOW)
        pids = [server.pid for server in self._servers]
        cpu, began = cpu_s(pids), time.perf_counter()
        waits_s = self._publish(frame, messages, window)
        seconds, cpu = time.perf_counter() - began, cpu_s(pids) - cpu
        return confirmed(messages, seconds, cpu, waits_s)

    def failover_gap_ms(self, blow: signal.Signals) -> float:
        """Publish through a server that does not lead while the leader is struck; then mend it."""
        leader = self._leader()
        self._socket.close()
        self._connect((leader + 1) % NODES)
        struck = self._servers[leader]
        try:
            return longest_gap_ms(
                lambda: self._socket.sendall(b"PUB q ack 4\r\nabcd\r\n"),
                self._acks_within,
                lambda: struck.send_signal(blow),
            )
        finally:
            if blow is signal.SIGKILL:
                struck.wait()
                self._servers[leader] = self._start(leader)
            else:
                struck.send_signal(signal.SIGCONT)

    # ---------------------------------------------------------------------------------------

    def _connect(self, number: int) -> None:
        for _ in attempts():
            try:
                self._socket = connect(_CLIENT_PORT + number)
                break
            except OSError:
                continue
        self._buffer = bytearray()
        self._socket.sendall(
            b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB api 1\r\nSUB ack 2\r\n'
        )

    def _leader(self) -> int:
        """Return who leads the stream, once all have what it has."""
        for _ in attempts():
            group = self._ask("INFO", None).get("cluster", {})
            replicas = group.get("replicas", ())
            if group.get("leader") and sum(r["current"] for r in replicas) == NODES - 1:
                break
        return int(group["leader"].removeprefix("n"))

    def _acks_within(self, seconds: float) -> int:
        self._socket.settimeout(seconds)
        try:
            self._buffer += read(self._socket)
        except TimeoutError:
            return 0
        # Right after an election a publication may be refused: nothing is confirmed by that.
        return self._take_acks(is_refusal_fatal=False)

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        folder = Path(self._folder.name)
        routes = ",".join(f'"nats://127.0.0.1:{_ROUTE_PORT + k}"' for k in range(NODES))
        config = folder / f"n{number}.conf"
        config.write_text(
            f"server_name: n{number}\n"
            f"listen: 127.0.0.1:{_CLIENT_PORT + number}\n"
            f'jetstream {{ store_dir: "{folder}/n{number}" }}\n'
            f"cluster {{ name: bench, listen: 127.0.0.1:{_ROUTE_PORT + number},"
            f" routes: [{routes}] }}\n"
        )
        with (folder / f"n{number}.log").open("wb") as log:
            return subprocess.Popen([self._program, "-c", str(config)], stdout=log, stderr=log)

    def _ask(self, verb: str, content: dict[str, Any] | None) -> dict[str, Any]:
        """Ask the stream API; {"error": ...} without an answer."""
        body = b"" if content is None else json.dumps(content).encode()
        self._socket.sendall(b"PUB $JS.API.STREAM.%b.Q api %d\r\n" % (verb.encode(), len(body)))
        self._socket.sendall(body + _END)
        self._socket.settimeout(2)
        try:
            while True:
                line = self._line()
                if line.startswith(b"MSG api "):
                    answer: dict[str, Any] = json.loads(self._line())
                    return answer
        except TimeoutError:
            return {"error": "no answer"}
        finally:
            self._socket.settimeout(30)

    def _line(self) -> bytes:
        while (end := self._buffer.find(_END)) < 0:
            self._buffer += read(self._socket)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _publish(self, frame: bytes, messages: int, window: int) -> list[float]:
        """Return how long each acknowledgement took, seconds."""
        waits_s: list[float] = []
        sent_at: deque[float] = deque()
        left = messages
        while len(waits_s) < messages:
            room = min(window - len(sent_at), left)
            if room:
                sent_at.extend([time.perf_counter()] * room)
                left -= room
                self._socket.sendall(frame * room)
            self._buffer += read(self._socket)
            acknowledged, now = self._take_acks(), time.perf_counter()
            waits_s.extend([now - sent_at.popleft() for _ in range(acknowledged)])
        return waits_s

    def _take_acks(self, *, is_refusal_fatal: bool = True) -> int:
        """Take whole frames out of the buffer; return how many were acknowledgements."""
        buffer, at, count = self._buffer, 0, 0
        while (end := buffer.find(_END, at)) >= 0:
            if buffer.startswith(_ACK, at):
                size = int(bytes(buffer[at:end]).rpartition(b" ")[2])
                if len(buffer) < end + 4 + size:
                    break
                if buffer.find(b'"error"', end, end + 2 + size) < 0:
                    count += 1
                elif is_refusal_fatal:
                    raise RuntimeError(bytes(buffer[end + 2 : end + 2 + size]).decode())
                at = end + 4 + size
                continue
            if buffer.startswith(b"PING", at):
                self._socket.sendall(b"PONG\r\n")
            at = end + 2
        del buffer[:at]
        return count
