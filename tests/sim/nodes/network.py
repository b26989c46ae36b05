"""Hosts and what lies between them: who listens, who is cut off, how long bytes take.

A link (a TCP connection, a call of gRPC) is first in, first out each way. What is sent into a cut
is held and goes on when it heals, ends of connections too. A process that dies resets its
connections; a machine without power is silent until it is back.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from zlib import crc32

from tests.sim.nodes.world import NS, World

if TYPE_CHECKING:
    from tests.sim.nodes.loop import SimLoop

Address = tuple[str, int]
DELAY_US: Final = (80, 600)
"""One way."""
SYN_EVERY_S: Final = 1.0
"""Between two attempts to connect to what does not answer."""
HIGH_WATER_BYTES: Final = 64 << 10
CUT_SHARE: Final = 0.1
"""Of what arrives over TCP, so much arrives in two pieces."""


class SimSocket:
    """Stands for a bound socket."""

    def __init__(self, address: str, port: int) -> None:
        self._name = (address, port)

    def getsockname(self) -> Address:
        return self._name

    def close(self) -> None:
        """Nothing is held before `listen`."""


class StreamServer:
    """What `create_server` returns."""

    def __init__(self, network: "Network", address: Address, loop: "SimLoop") -> None:
        self._network = network
        self._address = address
        self._loop = loop
        self.sockets = (SimSocket(*address),)

    def close(self) -> None:
        self._network.listeners.pop(self._address, None)

    async def wait_closed(self) -> None:
        """Closed is closed."""

    async def start_serving(self) -> None:
        """It serves from the beginning."""

    def is_serving(self) -> bool:
        return self._address in self._network.listeners

    def get_loop(self) -> "SimLoop":
        return self._loop


class Ended(Protocol):
    """What lives on a link and hears when a process at one end is gone."""

    def on_gone(self, loop: "SimLoop") -> None:
        """The process of `loop` ended: the other end learns it through the link."""


class Link:
    """What is under way between two processes."""

    def __init__(self, network: "Network", client: str, server: str, owner: Ended) -> None:
        """`client`, `server`: hosts."""
        self.network = network
        self.client = client
        self.server = server
        self.owner = owner
        self._held: deque[tuple[bool, Callable[[], None]]] = deque()
        self._last_ns = {True: 0, False: 0}
        self._is_over = False
        network.links[self] = None

    def send(self, action: Callable[[], None], *, to_server: bool) -> None:
        """Have something happen at the other end, after everything sent there before."""
        if self._is_blocked(to_server) or any(way == to_server for way, _ in self._held):
            self._held.append((to_server, action))
            return
        network, world = self.network, self.network.world
        when_ns = max(self._last_ns[to_server] + 1, world.time_ns + network.delay_ns())
        self._last_ns[to_server] = when_ns
        world.mark("net", self.client, self.server, to_server, when_ns)
        world.at(when_ns, action)

    def _is_blocked(self, to_server: bool) -> bool:
        ends = (self.client, self.server) if to_server else (self.server, self.client)
        return self.network.is_cut(*ends)

    def flush(self) -> None:
        """What was held goes on, as far as the way is open."""
        held, self._held = self._held, deque()
        for to_server, action in held:
            self.send(action, to_server=to_server)
        if self._is_over:
            self.close()

    def close(self) -> None:
        """Nothing more is sent; what is held still goes when the way is open."""
        self._is_over = True
        if not self._held:
            self.network.links.pop(self, None)


BENT_MIN_BYTES: Final = 256
"""A shorter part of a snapshot may be its offer."""
PART_HEAD_BYTES: Final = 32
"""What comes before the bytes of a snapshot in its parts is less."""


class Network:
    """See the module."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[Address, tuple[SimLoop, Any]] = {}
        """(host, port) -> process, and its protocol factory or gRPC server."""
        self.links: dict[Link, None] = {}
        self.slowness = 1
        """By how much everything takes longer than usual."""
        self.bending: list[int] = []
        """Where a bit flips in each of the next parts of snapshots, counted from its end."""
        self.bends = 0
        """Parts of snapshots in which a bit has flipped."""
        self._cuts: dict[tuple[str, str], int] = {}
        """(from, to) -> how many cuts are in force."""
        self._off: dict[str, list[Callable[[], None]]] = {}
        """Hosts without power, and what they answer when they are back."""
        self._chance = world.chance("network")

    # Faults ------------------------------------------------------------------------------------

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Return whether nothing gets from one host to the other."""
        return (sender, receiver) in self._cuts

    def delay_ns(self) -> int:
        """Return how long the next thing takes."""
        return self._chance.randrange(*DELAY_US) * 1000 * self.slowness

    def cut(self, ways: Iterable[tuple[str, str]]) -> None:
        """Cut directions off; each is mended once for each time."""
        for way in ways:
            self._cuts[way] = self._cuts.get(way, 0) + 1

    def mend(self, ways: Iterable[tuple[str, str]]) -> None:
        """Undo a cut."""
        for way in ways:
            left = self._cuts.get(way, 0) - 1
            if left > 0:
                self._cuts[way] = left
            else:
                self._cuts.pop(way, None)
        self._flush()

    def bend(self, sender: str, receiver: str, part: bytes) -> bytes:
        """Return a part of a snapshot as it arrives: behind its head, a bit may be another."""
        if not self.bending or len(part) < BENT_MIN_BYTES:
            return part
        at = -1 - self.bending.pop() % (len(part) - PART_HEAD_BYTES)
        self.bends += 1
        self.world.say("bent", sender, receiver, at)
        bent = bytearray(part)
        bent[at] ^= 1 << (at & 7)
        return bytes(bent)

    def heal(self) -> None:
        """Undo all."""
        self._cuts.clear()
        self.slowness = 1
        self._flush()

    def _flush(self) -> None:
        for link in list(self.links):
            link.flush()

    def reset_one(self) -> bool:
        """Break a drawn TCP connection that both ends use; tell whether there was one."""
        streams = [link.owner for link in self.links if isinstance(link.owner, Connection)]
        if not streams:
            return False
        self._chance.choice(streams).reset()
        return True

    def process_died(self, loop: "SimLoop") -> None:
        """Its addresses are free; its connections are reset."""
        for address in [a for a, (owner, _) in self.listeners.items() if owner is loop]:
            del self.listeners[address]
        waiting = self._off.get(loop.host)
        for link in list(self.links):
            if waiting is None:
                link.owner.on_gone(loop)
            else:
                waiting.append(partial(link.owner.on_gone, loop))

    def power_off(self, host: str) -> None:
        """From now on nothing comes from there, not even a reset."""
        self._off.setdefault(host, [])

    def power_on(self, host: str) -> None:
        """It answers again: what it knows nothing of is reset."""
        for answer in self._off.pop(host, ()):
            answer()

    def when_on(self, host: str, answer: Callable[[], None]) -> None:
        """Something came to a machine without power: it answers when it is back."""
        self._off[host].append(answer)

    def is_silent(self, host: str) -> bool:
        """Return whether the machine is without power."""
        return host in self._off

    # Listening and connecting ------------------------------------------------------------------

    def listen(self, loop: "SimLoop", address: Address, factory: Any) -> StreamServer:
        """Accept connections. Raises OSError."""
        self.claim(loop, address, factory)
        return StreamServer(self, address, loop)

    def claim(self, loop: "SimLoop", address: Address, server: Any) -> None:
        """Take an address. Raises OSError."""
        if address in self.listeners:
            raise OSError(errno.EADDRINUSE, f"{address[0]}:{address[1]} is in use")
        self.listeners[address] = (loop, server)

    async def probe(self, loop: "SimLoop", address: Address) -> None:
        """Connect, and no more. Raises ConnectionRefusedError."""
        await asyncio.sleep(self.delay_ns() / NS)
        host = address[0]
        while self.is_cut(loop.host, host) or self.is_cut(host, loop.host) or self.is_silent(host):
            await asyncio.sleep(SYN_EVERY_S)
        if address not in self.listeners:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"refused by {address}")

    async def connect(self, loop: "SimLoop", factory: Any, address: Address) -> Any:
        """Return (transport, protocol). Raises ConnectionRefusedError."""
        await self.probe(loop, address)
        server, accept = self.listeners[address]
        connection = Connection(self, loop, server, address)
        protocol = factory()
        connection.open(protocol, accept)
        return connection.client, protocol

    def datagrams(self, loop: "SimLoop", protocol: Any, own: Address) -> Any:
        """Return (transport, protocol): datagrams are lost, as they may be."""
        transport = Datagrams(own)
        loop.call_soon(protocol.connection_made, transport)
        return transport, protocol


class Datagrams(asyncio.DatagramTransport):
    """Sends nothing anywhere."""

    def __init__(self, own: Address) -> None:
        super().__init__({"sockname": own})

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Lose it."""

    def close(self) -> None:
        """There is nothing to close."""

    def abort(self) -> None:
        """Likewise."""


class Connection:
    """A TCP connection: two transports and the link between them."""

    def __init__(
        self, network: Network, client: "SimLoop", server: "SimLoop", address: Address
    ) -> None:
        self.link = Link(network, client.host, address[0], self)
        network.world.mark("connect", client.name, address)
        port = 40_000 + len(network.links)
        near, far = (client.host, port), address
        self.client = StreamTransport(self.link, client, near, far, is_server=False)
        self.server = StreamTransport(self.link, server, far, near, is_server=True)
        self.client.peer, self.server.peer = self.server, self.client

    def open(self, protocol: Any, accept: Callable[[], Any]) -> None:
        """The client is connected at once, the server a delay later."""
        server = self.server
        self.client.protocol = protocol

        def accepted() -> None:
            server.protocol = accept()
            server.protocol.connection_made(server)
            server.pump()

        self.link.send(lambda: server.soon(accepted), to_server=True)
        protocol.connection_made(self.client)

    def on_gone(self, loop: "SimLoop") -> None:
        """See Ended."""
        for end in (self.client, self.server):
            if end.loop is loop:
                end.tell_reset()

    def reset(self) -> None:
        """Both ends are told at once."""
        for end in (self.client, self.server):
            end.lost(ConnectionResetError(errno.ECONNRESET, "connection reset"))


class StreamTransport(asyncio.Transport):
    """One end of a TCP connection."""

    def __init__(
        self, link: Link, loop: "SimLoop", own: Address, peer: Address, *, is_server: bool
    ) -> None:
        super().__init__({"sockname": own, "peername": peer})
        self.link = link
        self.loop = loop
        self.peer: StreamTransport = self
        self.protocol: Any = None
        self._is_server = is_server
        self._inbox: deque[bytes | None] = deque()
        """None: the peer sends no more."""
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._high = HIGH_WATER_BYTES
        self._unread = 0
        """Bytes that the peer has not taken yet."""
        self._is_paused = False

    def soon(self, action: Callable[[], None]) -> None:
        """Do it in the process of this end, if that lives."""
        if not self.loop.is_dead:
            self.loop.call_soon(action)

    def _tell(self, action: Callable[[], None]) -> None:
        self.link.send(action, to_server=not self._is_server)

    # Writing

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_lost or not data:
            return
        peer, chunk = self.peer, bytes(data)
        self.loop.world.mark("bytes", self.loop.name, len(chunk), crc32(chunk))
        self._unread += len(chunk)
        self._tell(lambda: peer.arrive(chunk))
        if self._unread > self._high and not self._is_paused:
            self._is_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def taken(self, size: int) -> None:
        """The peer has read so many bytes."""
        self._unread -= size
        if self._is_paused and self._unread <= self._high // 4 and not self._is_lost:
            self._is_paused = False
            self.soon(lambda: None if self._is_lost else self.protocol.resume_writing())

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        peer = self.peer
        self._tell(lambda: peer.arrive(None))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is not None:
            self._high = high

    def get_write_buffer_size(self) -> int:
        return self._unread

    # Reading

    def arrive(self, data: bytes | None) -> None:
        """Something came over the link."""
        if not self._is_lost:
            self._inbox.append(data)
            self.soon(self.pump)
        elif data is not None and not self.loop.is_dead:
            self.tell_reset()

    def pump(self) -> None:
        """Give the protocol what is there."""
        while self._inbox and self._is_reading and not self._is_lost and self.protocol is not None:
            data = self._inbox.popleft()
            if data is None:
                if not self.protocol.eof_received():
                    self.close()
                continue
            peer, size = self.peer, len(data)
            self._tell(partial(peer.taken, size))
            chance = self.loop.network._chance
            if size > 1 and chance.random() < CUT_SHARE:
                cut = chance.randrange(1, size)
                self.protocol.data_received(data[:cut])
                data = data[cut:]
            self.protocol.data_received(data)

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.soon(self.pump)

    def is_reading(self) -> bool:
        return self._is_reading

    # The end

    def lost(self, error: Exception | None) -> None:
        """The connection is no more."""
        if self._is_lost:
            return
        self._is_lost = True
        self.link.close()
        if self.protocol is not None:
            self.soon(lambda: self.protocol.connection_lost(error))

    def tell_reset(self) -> None:
        """The process of this end is gone: the peer is reset."""
        peer = self.peer
        error = ConnectionResetError(errno.ECONNRESET, "reset by peer")
        self._tell(lambda: peer.lost(error))

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self.write_eof()
        self.lost(None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing or self._is_lost

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol
