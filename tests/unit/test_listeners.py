"""docs/security.md tells the limits of every listener: they are what the constants say."""

from collections.abc import Iterator
from pathlib import Path

from qm.api import server as api
from qm.api.gate import answers, receiving
from qm.console import forms, sign_ins
from qm.console import server as console
from qm.edge import limits as edge
from qm.edge.settings import EdgeSettings
from qm.node import grpc_guard, http, http_guard
from qm.node.config import schema
from qm.node.relay import channels
from qm.rpc import limits as rpc
from qm.session import limits as session
from raft.transport import door, grpc_transport, wire_format

PAGE = Path("docs") / "security.md"
MIB, KIB = 1 << 20, 1 << 10
HEAD = (
    "| port | connections: all, of an address; begun in a second: all, of an address | time |"
    " header, request | a peer that does not read |"
)


def rows() -> Iterator[str]:
    """The table's rows."""
    msmq = EdgeSettings(addresses=())
    yield (
        f"| {schema.MSMQ_PORT} MSMQ | {msmq.sessions_max:,}, {msmq.sessions_per_address_max:,}"
        f" (`msmq`); the last quarter for addresses with fewer than {edge.FEW_SESSIONS_COUNT}"
        f" | {session.INITIALIZATION_TIMEOUT_MS // 1000} s, {session.CLEANUP_TIMEOUT_MS // 1000} s"
        f" without traffic | 4 MiB; {edge.INCOMPLETE_MAX_BYTES // MIB} MiB of incomplete packets"
        f" and {edge.HELD_MAX_BYTES // MIB} MiB of unanswered ones, of all"
        f" | {edge.WRITE_BUFFER_MAX_BYTES // KIB} KiB, {edge.WRITE_STALL_MAX_S:g} s |"
    )
    yield (
        f"| {schema.PING_PORT} UDP, pings | answers in a second: {edge.PINGS_MAX_COUNT:,},"
        f" {edge.PINGS_PER_ADDRESS_MAX_COUNT} | | | no answer is longer than its question |"
    )
    for port, guard, name in (
        (schema.API_PORT, grpc_guard.API_LIMITS, "API"),
        (schema.RELAY_PORT, grpc_guard.RELAY_LIMITS, "relay between nodes"),
    ):
        is_api = port == schema.API_PORT
        header = api.METADATA_MAX_BYTES if is_api else channels.METADATA_MAX_BYTES
        request = receiving.REQUEST_MAX_BYTES if is_api else channels.FRAME_MAX_BYTES
        unread = (
            f"{answers.UNREAD_MAX_BYTES // MIB} MiB of all,"
            f" {answers.UNREAD_PER_PRINCIPAL_MAX_BYTES // MIB} MiB of a principal"
        )
        yield (
            f"| {port} {name} | {guard.total:,}, {guard.per_address:,}; the last quarter for"
            f" addresses with fewer than {guard.few}; looked at every {grpc_guard.LOOK_EVERY_S:g} s"
            f" | {api.HANDSHAKE_TIMEOUT_MS // 1000} s | {header // KIB} KiB, {request // MIB} MiB,"
            f" {receiving.REQUEST_MAX_S:g} s | {unread if is_api else 'its stream ends'} |"
        )
    at_door = door.LIMITS
    yield (
        f"| {schema.RAFT_PORT} consensus | {at_door.total:,}, {at_door.per_address};"
        f" {at_door.begun_per_s}, {at_door.begun_per_address_per_s}; the last quarter for addresses"
        f" with fewer than {at_door.few} | {door.HANDSHAKE_TIMEOUT_MS // 1000} s |"
        f" {grpc_transport.METADATA_MAX_BYTES // KIB} KiB,"
        f" {wire_format.FRAME_MAX_BYTES // MIB} MiB | a bounded queue; Raft repeats |"
    )
    for port, name, body in (
        (schema.HTTP_PORT, "health, metrics", "no body"),
        (schema.CONSOLE_PORT, "console", f"a form of {forms.FORM_MAX_BYTES // MIB} MiB"),
    ):
        assert http.HEADER_MAX_BYTES == console.HEADER_MAX_BYTES
        web = http_guard.LIMITS
        yield (
            f"| {port} {name} | {web.total}, {web.per_address}; {web.begun_per_s},"
            f" {web.begun_per_address_per_s}; the last quarter for addresses with fewer than"
            f" {web.few}; requests in a second: {http_guard.REQUESTS_MAX_PER_S},"
            f" {http_guard.REQUESTS_PER_ADDRESS_MAX_PER_S}; further ones wait | handshake"
            f" {http_guard.HANDSHAKE_MAX_S:g} s, request"
            f" {http_guard.HEADER_MAX_S:g} s | {http.HEADER_MAX_BYTES:,} bytes a line, {body}"
            f" | {http_guard.REQUEST_MAX_S:g} s |"
        )
    yield (
        f"| {schema.MAPPER_PORT}, {schema.RPC_PORT} RPC | {rpc.CONNECTIONS_MAX:,},"
        f" {rpc.CONNECTIONS_PER_ADDRESS_MAX}; the last quarter for addresses with at most"
        f" {rpc.CONNECTIONS_FEW} | bind {rpc.BIND_TIMEOUT_S:g} s, {rpc.IDLE_TIMEOUT_S:g} s idle"
        f" | {rpc.FRAGMENT_MAX_BYTES:,} bytes a fragment, {rpc.STUB_MAX_BYTES / MIB:.1f} MiB a"
        f" call, {rpc.STUBS_MAX_BYTES // MIB} MiB of all | {rpc.UNSENT_MAX_BYTES // MIB} MiB,"
        f" {rpc.UNSENT_ALL_MAX_BYTES // MIB} MiB of all |"
    )


def test_the_table_of_listeners_is_what_the_constants_say() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    begin = lines.index(HEAD)
    end = begin + lines[begin:].index("")
    assert lines[begin + 2 : end] == list(rows())


def test_the_page_tells_the_limits_of_the_console() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert (
        f"{sign_ins.CODES_PER_PERSON_MAX} codes, {sign_ins.SESSIONS_PER_PERSON_MAX} sessions and"
        f" {console.REQUESTS_PER_PERSON_MAX} requests in progress"
    ) in text
