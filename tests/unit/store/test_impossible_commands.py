"""Whatever a decodable entry contains, apply answers it: never an exception, always the same.

An exception in apply would stop every node at the same entry, forever.
"""

import os
import random
import zlib
from array import array
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from qm.model.machine import Machine
from qm.model.queries import View, list_queues, queue_statistics
from qm.model.state.tables import MemoryState
from qm.model.values import commands
from qm.model.values.columns import typecode_of
from qm.model.values.commands import Command
from qm.model.values.elements import QueueAccessType
from qm.model.values.limits import APPLY_VERSION
from qm.store.codec import UnknownCommand, decode_entry, encode_command, encode_stamp
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.packets.user_message import parse_user_message
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
)
from raft.batch import BatchBuilder
from tests.unit.model.world import HOST, NOW_MS, NOW_S, PEER, packet
from tests.unit.store.test_audit import RECEIVE, create
from tests.unit.store.test_store import setup_commands

SEEDS = int(os.environ.get("IMPOSSIBLE_SEEDS", "40"))
COMMANDS_PER_SEED = 40
TRIES_MAX = 50
ENTRIES_PER_RUN = 3
U32, U64 = (1 << 32) - 1, (1 << 64) - 1
SEND = QueueAccessType.SEND_ACCESS
KINDS = [kind for kind in commands.DECLARATIONS if kind is not commands.EdgeBatch]
CLOCKS = (NOW_MS, NOW_MS, NOW_MS + 5_000, NOW_MS + 10**9, 0, U64)
EDGES = (1 << 31, U32, U32 - 1, 1 << 56, 7 << 56, 8 << 56, U64, U64 - 1, (7 - 3) << 56 | 1)
TEXTS = (
    "",
    "c",
    "c",
    "c\0d",
    "x" * 300,
    "\U0001f600",
    "\u0130stanbul",
    ".\\new",
    ".\\private$\\new",
    ".\\orders;sub",
    "\\",
    f"DIRECT=OS:{HOST}\\orders",
    f"DIRECT=OS:{HOST}\\exact",
    f"DIRECT=OS:{HOST}\\orders;sub",
    f"DIRECT=OS:{HOST}\\orders;JOURNAL",
    f"DIRECT=OS:{HOST}\\SYSTEM$;DEADLETTER",
    "DIRECT=OS:far\\q",
    "DIRECT=HTTP://web/MSMQ\\q",
    f"DIRECT=OS:{HOST}\\orders,DIRECT=OS:far\\q",
    "MULTICAST=234.1.1.1:8001",
    "PUBLIC=00000000-0000-0000-0000-000000000001",
    "PRIVATE=03020100-0504-0706-0809-0A0B0C0D0E0F\\00000004",
    "DL=00000000-0000-0000-0000-000000000001",
    "MACHINE=00000000-0000-0000-0000-000000000001;JOURNAL",
    "10.0.0.0/24",
    "45455250-4545-5250-4545-525045455250 10.0.0.7/32",
)
BLOBS = (
    b"",
    b"t" * 16,
    b"u" * 16,
    bytes(16),
    b"\xff" * 16,
    b"o" * 16,
    b"n" * 16,
    b"\x01\x00\x04\x80",
)
NAMES = (
    "label", "type", "journaling", "quota", "journal_quota", "authentication", "privacy_level",
    "transactional", "multicast_address", "base_priority", "security", "aliases",
    "queue_manager_quota", "hardened_security", "duplicate_horizon_ms", "result_retention_ms",
    "transaction_retention_ms", "legacy_name", "directory_integrated", "name",
    "actual_cost", "certificate_digest_list", "security_identifier", "site_identifier_list",
    "public_encryption_key_list", "default_time_to_live", "colour",
)  # fmt: skip


ODD_LABELS = ("", "label", "\ud800", "a\udfff", "\U0001f600")
ODD_DIRECT_NAMES = (
    "OS:\ud800\\q",
    "OS:far\\q",
    f"OS:{HOST}\\orders;sub",
    f"OS:{HOST}\\SYSTEM$;JOURNAL",
    "HTTP://web/MSMQ/q",
    "TCP:1.2.3.4\\PRIVATE$\\x",
    "OS:\u0130\\q",
    "nonsense",
    "x" * 300,
)
NAME_MAKERS: tuple[Callable[[Any], QueueName], ...] = (
    lambda maker: DirectQueueFormatName(f"OS:{HOST}\\orders"),
    lambda maker: DirectQueueFormatName(maker.chance.choice(ODD_DIRECT_NAMES)),
    lambda maker: PublicQueueFormatName(maker.chance.choice((b"o" * 16, b"?" * 16))),
    lambda maker: PrivateQueueFormatName(b"o" * 16, maker.chance.choice((4, 5, 16, U32))),
    lambda maker: PrivateQueueFormatNameId(
        maker.chance.choice(list(QueueHost)), maker.chance.choice((4, 16, U32))
    ),
)


ADDRESSES = ("", "10.0.0.7", "10.0.0.66", "2001:db8::7%eth0", "nonsense")
SEND_PLACES = ("packets", "targets", "body_index", "body_offset", "first_ordinal", "facts")


class Maker:
    """Makes commands whose fields hold anything."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def number(self) -> int:
        kind = self.chance.randrange(4)
        if kind < 2:
            return self.chance.randrange(20)
        return self.chance.choice(EDGES) if kind == 2 else self.chance.getrandbits(64)

    def text(self) -> str:
        if self.chance.random() < 0.8:
            return self.chance.choice(TEXTS)
        return "".join(chr(self.chance.choice((0, 9, 92, 58, 59, 0xDF, 0x1F600))) for _ in range(4))

    def blob(self) -> bytes:
        if self.chance.random() < 0.7:
            return self.chance.choice(BLOBS)
        return self.chance.randbytes(self.chance.randrange(40))

    def value(self) -> bytes:
        made = self.chance.choice(
            (None, True, False, self.number(), -self.number() % (1 << 63), self.text(), self.blob())
        )
        if self.chance.random() < 0.2:
            return self.blob()
        if self.chance.random() < 0.2:
            return msgspec.msgpack.encode([made, made])
        return msgspec.msgpack.encode(made)

    def attributes(self) -> dict[str, bytes]:
        count = self.chance.choice((0, 1, 1, 2, 3))
        return {self.chance.choice(NAMES): self.value() for _ in range(count)}

    def texts(self) -> dict[str, str]:
        return {self.text(): self.text() for _ in range(self.chance.choice((0, 1, 3, 20)))}

    def packet(self) -> bytes:
        chance = self.chance
        names = (None, *(make(self) for make in NAME_MAKERS))
        for _ in range(TRIES_MAX):
            try:
                return self.changed(self.sound_packet(chance, names))
            except ValueOutOfRange:
                continue  # not every name can be used everywhere
        raise AssertionError("no packet that can be written")

    def changed(self, raw: bytes) -> bytes:
        """Flip some bytes, as far as the packet stays one that an edge lets pass."""
        for _ in range(self.chance.choice((0, 4, 30))):
            changed = bytearray(raw)
            at = self.chance.randrange(16, len(raw))
            changed[at] = self.chance.choice(
                (0, 1, 0xFF, changed[at] ^ 1 << self.chance.randrange(8))
            )
            try:
                parse_user_message(changed, 0, len(changed))
            except ProtocolError:
                continue
            raw = bytes(changed)
        return raw

    @staticmethod
    def sound_packet(chance: random.Random, names: tuple[QueueName | None, ...]) -> bytes:
        destinations: list[QueueName | str] = ["orders", "exact", "nowhere"]
        destinations += [name for name in names if name is not None]
        return packet(
            chance.choice((1, 2, 3, 0, U32)),
            to=chance.choice(destinations),
            body=chance.randbytes(chance.randrange(30)),
            sequence=chance.choice((None, None, (1 << 32, 1, 0), (U64, U32, U32 - 1))),
            priority=chance.randrange(8),
            sent_time=chance.choice((0, NOW_S, U32)),
            time_to_be_received=chance.choice((0, 5, U32 - 1, U32, U32)),
            time_to_reach_queue=chance.choice((0, 5, U32 - 1, U32, U32)),
            has_negative_journaling=chance.random() < 0.5,
            has_positive_journaling=chance.random() < 0.5,
            admin_queue=chance.choice(names),
            response_queue=chance.choice(names),
            report_to=chance.choice((None, None, b"o" * 16)),
            properties={"flags": chance.choice((0, 15)), "label": chance.choice(ODD_LABELS)},
        )

    def many(self, make: Callable[[], Any]) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self.chance.randrange(4)))

    def field(self, name: str, kind: Any) -> Any:
        """Return what a field may hold."""
        chance = self.chance
        if typecode_of(kind) is not None:
            return array("Q", self.many(self.number))
        if kind is commands.Request:
            who = chance.choice(("", "", "c", "c", "nobody"))
            if chance.random() < 0.9:
                return commands.Request(who, self.number(), self.number())
            call = commands.ControlCall(self.text(), self.text(), self.text(), self.texts())
            return commands.Request(who, 0, 0, self.blob(), call=call)
        if kind is commands.Selector:
            return commands.Selector(chance.choice(list(commands.SelectorKind)), self.number())
        if kind in (int | None, bytes | None, dict[str, bytes] | None) and chance.random() < 0.3:
            return None
        makers: dict[Any, Callable[[], Any]] = {
            bool: lambda: chance.random() < 0.5,
            int: self.number,
            int | None: self.number,
            str: self.text,
            bytes: self.blob,
            bytes | None: self.blob,
            tuple[bytes, ...]: lambda: self.many(self.blob),
            tuple[str, ...]: lambda: self.many(self.text),
            tuple[int, ...]: lambda: self.many(self.number),
            dict[str, bytes]: self.attributes,
            dict[str, str]: self.texts,
            tuple[commands.SeenEvent, ...]: lambda: self.many(
                lambda: self.filled(commands.SeenEvent)
            ),
            dict[str, bytes] | None: self.attributes,
        }
        return makers[kind]()

    def filled(self, kind: type[Any]) -> Any:
        fields = msgspec.structs.fields(kind)
        return kind(**{one.name: self.field(one.name, one.type) for one in fields})

    def send(self) -> Command:
        """Return a Send whose packets are where it says, whatever they contain."""
        chance = self.chance
        copies = [
            (self.text(), self.packet() if chance.random() < 0.8 else self.blob())
            for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))
        ]
        fields = {
            one.name: self.field(one.name, one.type)
            for one in msgspec.structs.fields(commands.Send)
            if one.name not in SEND_PLACES
        }
        # One per target, as the wire form wants it, or none.
        fields["facts"] = tuple(self.facts() for _ in copies) if chance.random() < 0.5 else ()
        return commands.Send.of(fields.pop("request"), copies, **fields)

    def facts(self) -> commands.Facts:
        chance = self.chance
        known: dict[str, Any] = {
            "signature": chance.choice(list(commands.SignatureFact)),
            "signature_version": chance.choice((0, 1, 3, 5, U32)),
            "hash_algorithm": chance.choice((0, 0x8001, 0x800E, U32)),
        }
        others = {
            one.name: self.field(one.name, one.type)
            for one in msgspec.structs.fields(commands.Facts)
            if one.name not in known
        }
        return commands.Facts(**known, **others)

    def command(self) -> Command:
        """Return a command that the wire form can hold."""
        for _ in range(TRIES_MAX):
            if self.chance.random() < 0.2:
                raw = [self.packet() for _ in range(self.chance.randint(1, 3))]
                return edge_batch(raw, self.many(self.blob), self.chance.choice(ADDRESSES))
            kind = self.chance.choice(KINDS)
            made = self.send() if kind is commands.Send else self.filled(kind)
            try:
                encode_command(made)
            except (ValueError, TypeError, OverflowError):
                continue
            return made
        raise AssertionError("no command that the wire form can hold")


def edge_batch(raw: list[bytes], sids: tuple[bytes, ...] = (), address: str = "") -> Command:
    offsets = [0]
    for one in raw:
        offsets.append(offsets[-1] + len(one))
    return commands.EdgeBatch(
        "n1",
        1,
        memoryview(b"".join(raw)),
        0,
        array("I", offsets),
        array("I", [zlib.crc32(one) for one in raw]),
        bytes(len(raw)),
        (commands.Facts(1, PEER, address, sids),),
        0,
        0,
    )


class Replicas:
    """Two machines over the same entries: one keeps what it derives and settles once per run, as
    the store does; the other settles and forgets each time.
    """

    def __init__(self) -> None:
        self.states = [MemoryState(), MemoryState()]
        self.machines = [Machine(state) for state in self.states]
        self.index = 0
        request = commands.Request
        self.apply(*setup_commands(), create("exact", is_transactional=True))
        self.apply(
            commands.OpenQueue(request("c", 2, 0), f"DIRECT=OS:{HOST}\\exact", RECEIVE, 0, ()),
            commands.TxBegin(request("c", 3, 0), b"t" * 16, True, "", 60_000),
            commands.TxBegin(request("c", 4, 0), b"u" * 16, False, "", 60_000),
            commands.OpenQueue(request("c", 5, 0), "DIRECT=OS:far\\q", SEND, 0, ()),
            edge_batch([packet(number) for number in range(1, 4)]),
        )

    def apply(self, *given: Command, now_ms: int = NOW_MS) -> None:
        builder = BatchBuilder()
        builder.add(encode_stamp(commands.Stamp(now_ms, "n1.1", APPLY_VERSION)))
        for command in given:
            builder.add(encode_command(command))
        self.index += 1
        try:
            batch = decode_entry(self.index, builder.build())
        except UnknownCommand:
            return  # the node stops before it diverges
        warm, cold = self.machines
        outcomes = warm.apply(batch, settle=False).outcomes
        assert repr(outcomes) == repr(cold.apply(batch).outcomes)
        cold.forget()
        if self.index % ENTRIES_PER_RUN == 0:
            self.settle()

    def settle(self) -> None:
        """End a run: the rows are the same."""
        self.machines[0].settle()
        assert list(self.states[0].rows()) == list(self.states[1].rows())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_apply_answers_everything(seed: int) -> None:
    replicas, maker = Replicas(), Maker(seed)
    for _ in range(COMMANDS_PER_SEED):
        command = maker.command()
        try:
            replicas.apply(command, now_ms=maker.chance.choice(CLOCKS))
        except Exception as error:
            error.add_note(f"seed {seed}: {command}")
            raise
    replicas.settle()
    view = View.of(replicas.states[0])
    for queue in list_queues(view, limit=1_000).items:
        assert queue_statistics(view, queue.queue_id) is not None
