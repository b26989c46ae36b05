"""Where the fuzzer starts: the specification's packets, ours, and one with every header."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from qm.wire.headers.debug_header import DebugHeader
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import DistributionQueueFormatName, MultiQueueFormatHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.soap_header import SoapHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PublicQueueFormatName,
    SameAsAdminQueue,
)

VECTORS = Path(__file__).resolve().parents[1] / "data" / "vectors"
TRANSPORTS = ("tcp/1801", "udp/3527")
TOKENS = {
    "version_and_signature": b"\x10\0\x03\0LIOR",
    "ping_signature": b"HU",
    "ack_label": "QM Ordering Ack".encode("utf-16-le") + b"\0\0",
    "order_queue": "\\PRIVATE$\\order_queue$".encode("utf-16-le") + b"\0\0",
    "soap_header": b"\x20\x03\0\0",
    "soap_body": b"\x84\x03\0\0",
    "mqf_destination": b"\x64\0\0\0",
    "mqf_admin": b"\xc8\0\0\0",
    "mqf_response": b"\x2c\x01\0\0",
    "mqf_signature": b"\x5e\x01\0\0",
    "size_max": b"\0\0\x40\0",
    "all_ones": b"\xff\xff\xff\xff",
}


def full_message() -> UserMessage:
    """A message with every optional header and every kind of queue name."""
    direct = DirectQueueFormatName("OS:srv1\\private$\\orders")
    queues = (
        PublicQueueFormatName(bytes(16)),
        PrivateQueueFormatName(bytes(16), 7),
        direct,
        DistributionQueueFormatName(bytes(16)),
    )
    return UserMessage(
        UserHeader(
            bytes(range(16)),
            direct,
            admin_queue=PrivateQueueFormatName(bytes(16), 9),
            response_queue=SameAsAdminQueue(),
            connector_type=bytes(16),
            is_recoverable=True,
        ),
        MessagePropertiesHeader(b"body", "label", flags=15, extension_data=b"ext"),
        TransactionHeader(TxSequenceId(time_stamp=1, ordinal=2), 3, 2, connector_qm_guid=bytes(16)),
        SecurityHeader(1, security_id=b"sid", signature=b"sig", provider_info=b"provider"),
        DebugHeader(bytes(16)),
        SoapHeader("envelope", "body"),
        MultiQueueFormatHeader(queues, queues[2:3], (), b"signature"),
        SessionHeader(1, 2, 3, 4, 5, 6),
        priority=0,
        is_traced=True,
    )


def seeds() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each starting point."""
    for file in sorted(VECTORS.glob("*.json")):
        vector = json.loads(file.read_text(encoding="utf-8"))
        if vector["transport"] in TRANSPORTS:
            yield file.stem, bytes.fromhex(vector["hex"])
    yield "full_message", write_packet(full_message())


def write_corpus(folder: Path) -> int:
    """Write the seeds as files, one each, and return how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, raw in seeds():
        (folder / name).write_bytes(raw)
        count += 1
    return count


def write_dictionary(file: Path) -> None:
    """Write the tokens in libFuzzer's form."""
    lines = (
        f'{name}="' + "".join(f"\\x{byte:02x}" for byte in token) + '"'
        for name, token in TOKENS.items()
    )
    file.write_text("\n".join(lines) + "\n", encoding="ascii")
