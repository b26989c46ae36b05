"""RabbitMQ: a quorum queue of three members, persistent messages, publisher confirms."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Final

from tests.bench.cluster_nodes import cpu_s
from tests.bench.peers.gap import longest_gap_ms
from tests.bench.peers.measure import (
    WARM_UP,
    WINDOW,
    Rate,
    attempts,
    confirmed,
    connect,
    descendants,
    read,
    require,
)

NODES: Final = 3
_PORT: Final = 25_670
_DISTRIBUTION_PORT: Final = 45_670
_EPMD_PORT: Final = 24_369
_PROGRAMS: Final = "/usr/lib/rabbitmq/bin"
_ACK_EVERY: Final = 64

# AMQP 0-9-1: classes and methods.
_METHOD, _HEADER, _BODY = 1, 2, 3
_START, _START_OK, _TUNE, _TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
_OPEN, _OPEN_OK, _CLOSE, _CLOSE_OK = (10, 40), (10, 41), (10, 50), (10, 51)
_CHANNEL_OPEN, _CHANNEL_OPEN_OK = (20, 10), (20, 11)
_DECLARE, _DECLARE_OK = (50, 10), (50, 11)
_QOS, _QOS_OK, _CONSUME, _PUBLISH, _DELIVER = (60, 10), (60, 11), (60, 20), (60, 40), (60, 60)
_ACK = (60, 80)
_SELECT, _SELECT_OK = (85, 10), (85, 11)
_FRAME = Struct(">BHI")
_NUMBERS = Struct(">HH")
_FRAME_END = b"\xce"


class RabbitMq:
    """Three brokers with one queue, as long as the context lasts."""

    def __init__(self) -> None:
        require("rabbitmq-server", "rabbitmq-server")
        programs = Path(_PROGRAMS)
        self._server = str(programs / "rabbitmq-server")
        self._control = str(programs / "rabbitmqctl")

    def __enter__(self) -> "RabbitMq":
        self._folder = Path(tempfile.mkdtemp(prefix="quorate-peer-rabbitmq-"))
        nodes = "".join(
            f"cluster_formation.classic_config.nodes.{k + 1} = {_name(k)}\n" for k in range(NODES)
        )
        (self._folder / "rabbitmq.conf").write_text(
            f"cluster_formation.peer_discovery_backend = classic_config\n{nodes}"
            "log.console = false\n"
        )
        self._brokers = [self._start(number) for number in range(NODES)]
        self._await_all(0)
        self._pids = [pid for broker in self._brokers for pid in descendants(broker, "beam.smp")]
        self._publisher = _Channel(_PORT)
        quorum = b"\x0cx-queue-typeS" + (6).to_bytes(4, "big") + b"quorum"
        arguments = len(quorum).to_bytes(4, "big") + quorum
        self._publisher.call(_DECLARE, b"\0\0\x01q\x02" + arguments, _DECLARE_OK)
        self._publisher.call(_SELECT, b"\0", _SELECT_OK)
        self._tag = 0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGTERM)
        for broker in self._brokers:
            broker.wait()
        # The port mapper of these brokers' own port outlives them.
        self._run(["epmd", "-port", str(_EPMD_PORT), "-kill"])
        shutil.rmtree(self._folder)

    def publish(self, messages: int, size: int, window: int = WINDOW) -> Rate:
        """Publish with `window` messages unconfirmed, until all are confirmed."""
        message = _message(os.urandom(size))
        self._publish(message, WARM_UP, WINDOW)
        with closing(self._consumer()) as consumer:
            _consume(consumer, WARM_UP)
        cpu, began = cpu_s(self._pids), time.perf_counter()
        waits_s = self._publish(message, messages, window)
        seconds, cpu = time.perf_counter() - began, cpu_s(self._pids) - cpu
        return confirmed(messages, seconds, cpu, waits_s)

    def consume(self, messages: int) -> Rate:
        """Consume through another node, acknowledging ranges."""
        with closing(self._consumer()) as consumer:
            cpu, began = cpu_s(self._pids), time.perf_counter()
            _consume(consumer, messages)
            seconds, cpu = time.perf_counter() - began, cpu_s(self._pids) - cpu
        return Rate(messages / seconds, cpu / messages * 1e6)

    def failover_gap_ms(self, blow: signal.Signals) -> float:
        """Publish through a broker that does not lead while the leader is struck; then mend it."""
        leader = self._leader()
        witness = (leader + 1) % NODES
        channel = _Channel(_PORT + witness)
        channel.call(_SELECT, b"\0", _SELECT_OK)
        message = _message(b"abcd")
        try:
            return longest_gap_ms(
                lambda: channel.socket.sendall(message),
                channel.acks_within,
                lambda: os.kill(self._pids[leader], blow),
            )
        finally:
            channel.socket.close()
            if blow is signal.SIGKILL:
                self._brokers[leader].wait()
                self._brokers[leader] = self._start(leader)
                self._await_all(witness)
                (self._pids[leader],) = descendants(self._brokers[leader], "beam.smp")
            else:
                os.kill(self._pids[leader], signal.SIGCONT)
                self._await_all(witness)

    # ---------------------------------------------------------------------------------------

    def _await_all(self, number: int) -> None:
        """Have a broker wait for all."""
        for _ in attempts():
            words = [self._control, "-n", _name(number), "await_online_nodes", str(NODES)]
            if self._run(words) == 0:
                break

    def _leader(self) -> int:
        """Return who leads the queue."""
        names = [_name(number) for number in range(NODES)]
        words = [self._control, "-q", "-n", names[0], "list_queues", "--no-table-headers", "leader"]
        for _ in attempts():
            said = subprocess.run(
                words, env=self._environment(0), capture_output=True, text=True, check=False
            ).stdout.strip()
            if said in names:
                break
        return names.index(said)

    def _environment(self, number: int) -> dict[str, str]:
        folder = self._folder
        return os.environ | {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(_EPMD_PORT),
            "RABBITMQ_NODENAME": _name(number),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(_PORT + number),
            "RABBITMQ_DIST_PORT": str(_DISTRIBUTION_PORT + number),
            "RABBITMQ_MNESIA_BASE": str(folder / f"data{number}"),
            "RABBITMQ_LOG_BASE": str(folder / f"log{number}"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        }

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        with (self._folder / f"out{number}").open("wb") as out:
            return subprocess.Popen(
                [self._server],
                env=self._environment(number),
                cwd=self._folder,
                stdout=out,
                stderr=out,
            )

    def _run(self, words: list[str]) -> int:
        with (self._folder / "control").open("ab") as out:
            return subprocess.call(
                words, env=self._environment(0), cwd=self._folder, stdout=out, stderr=out
            )

    def _publish(self, message: bytes, messages: int, window: int) -> list[float]:
        """Return how long each confirmation took, seconds."""
        waits_s: list[float] = []
        # By delivery tag, ascending.
        sent_at: dict[int, float] = {}
        left = messages
        while len(waits_s) < messages:
            room = min(window - len(sent_at), left)
            if room:
                sent_at.update(
                    dict.fromkeys(range(self._tag + 1, self._tag + room + 1), time.perf_counter())
                )
                self._tag += room
                left -= room
                self._publisher.socket.sendall(message * room)
            confirms, now = self._publisher.methods(), time.perf_counter()
            for method, arguments in confirms:
                assert method == _ACK, f"not confirmed: {method}"
                tag = int.from_bytes(arguments[:8], "big")
                for each in _upto(sent_at, tag) if arguments[8] else [tag]:
                    waits_s.append(now - sent_at.pop(each))
        return waits_s

    def _consumer(self) -> "_Channel":
        consumer = _Channel(_PORT + 1)
        prefetch = (0).to_bytes(4, "big") + WINDOW.to_bytes(2, "big") + b"\0"
        consumer.call(_QOS, prefetch, _QOS_OK)
        return consumer


class _Channel:
    """A connection with one channel."""

    def __init__(self, port: int) -> None:
        for _ in attempts():
            try:
                self.socket = connect(port)
                break
            except OSError:
                continue
        self._buffer = bytearray()
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.expect(_START)
        plain = b"\0guest\0guest"
        answer = bytes(4) + b"\x05PLAIN" + len(plain).to_bytes(4, "big") + plain + b"\x05en_US"
        self.socket.sendall(_method(0, _START_OK, answer))
        limits = self.expect(_TUNE)
        self.socket.sendall(_method(0, _TUNE_OK, limits[:6] + bytes(2)))
        self.socket.sendall(_method(0, _OPEN, b"\x01/\0\0"))
        self.expect(_OPEN_OK)
        self.call(_CHANNEL_OPEN, b"\0", _CHANNEL_OPEN_OK)

    def call(self, method: tuple[int, int], arguments: bytes, answer: tuple[int, int]) -> None:
        """Call a method of the channel and wait for its answer."""
        self.socket.sendall(_method(1, method, arguments))
        self.expect(answer)

    def expect(self, wanted: tuple[int, int]) -> bytes:
        """Return the arguments of the method that must come next."""
        while True:
            for method, arguments in self.methods():
                if method == wanted:
                    return arguments
                raise RuntimeError(f"the broker says {method} {arguments!r}, not {wanted}")

    def methods(self) -> list[tuple[tuple[int, int], bytes]]:
        """Read; return the methods that have come whole, contents are passed over."""
        self._buffer += read(self.socket)
        buffer, at, found = self._buffer, 0, []
        while len(buffer) - at >= _FRAME.size:
            kind, _, size = _FRAME.unpack_from(buffer, at)
            end = at + _FRAME.size + size
            if len(buffer) <= end:
                break
            if kind == _METHOD:
                numbers = _NUMBERS.unpack_from(buffer, at + _FRAME.size)
                found.append((numbers, bytes(buffer[at + _FRAME.size + _NUMBERS.size : end])))
            at = end + 1
        del buffer[:at]
        return found

    def acks_within(self, seconds: float) -> int:
        """Return how many confirmations come in time."""
        self.socket.settimeout(seconds)
        try:
            return sum(method == _ACK for method, _ in self.methods())
        except TimeoutError:
            return 0

    def close(self) -> None:
        """Have the broker handle everything that was sent, then part."""
        self.socket.sendall(_method(0, _CLOSE, bytes(2) + b"\0" + bytes(4)))
        while not any(method == _CLOSE_OK for method, _ in self.methods()):
            pass
        self.socket.close()


def _consume(consumer: _Channel, messages: int) -> None:
    """Take messages, acknowledging ranges."""
    consumer.socket.sendall(_method(1, _CONSUME, b"\0\0\x01q\x01c\0" + bytes(4)))
    received = unacknowledged = 0
    tag = b""
    while received < messages:
        for method, arguments in consumer.methods():
            if method == _DELIVER:
                tag = arguments[1 + arguments[0] :][:8]
                received += 1
                unacknowledged += 1
        if unacknowledged >= _ACK_EVERY or received >= messages:
            consumer.socket.sendall(_method(1, _ACK, tag + b"\x01"))
            unacknowledged = 0


def _name(number: int) -> str:
    return f"bench{number}@localhost"


def _message(body: bytes) -> bytes:
    """Return what publishes a persistent message."""
    properties = _NUMBERS.pack(60, 0) + len(body).to_bytes(8, "big") + b"\x10\x00\x02"
    return (
        _method(1, _PUBLISH, b"\0\0\0\x01q\0")
        + _frame(_HEADER, 1, properties)
        + _frame(_BODY, 1, body)
    )


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + _FRAME_END


def _method(channel: int, method: tuple[int, int], arguments: bytes) -> bytes:
    return _frame(_METHOD, channel, _NUMBERS.pack(*method) + arguments)


def _upto(sent_at: dict[int, float], tag: int) -> list[int]:
    found = []
    for sent in sent_at:
        if sent > tag:
            break
        found.append(sent)
    return found
