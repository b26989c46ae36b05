"""impacket against a node's mapper, management interface and remote read; it imports nothing of qm.

    python impacket_client.py HOST MAPPER_PORT

Stubs of remote read are packed here by hand, from the text of [MS-MQRR]. impacket sends no message
integrity code in NTLM, so the node has to accept that.
"""

import struct
import sys
from typing import Any

from impacket.dcerpc.v5 import epm, mgmt, transport
from impacket.dcerpc.v5.rpcrt import (
    RPC_C_AUTHN_LEVEL_PKT_INTEGRITY,
    RPC_C_AUTHN_LEVEL_PKT_PRIVACY,
    DCERPCException,
)
from impacket.uuid import uuidtup_to_bin

HOST = sys.argv[1] if len(sys.argv) > 1 else ""
REMOTE_READ = uuidtup_to_bin(("1a9134dd-7b39-45ba-ad88-44d01ca47f28", "1.0"))
UNKNOWN = uuidtup_to_bin(("1a9134dd-7b39-45ba-ad88-44d01ca47f29", "1.0"))
NAME = "OS:QUORATE\\private$\\orders"
TIMED_OUT = 0xC00E001B


def connected(port: int, password: str = "", level: int = 0) -> Any:
    made = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{HOST}[{port}]")
    if password:
        made.set_credentials("alice", password, "", "", "")
    dce = made.get_dce_rpc()
    if level:
        dce.set_auth_level(level)
    dce.connect()
    return dce


def call(dce: Any, opnum: int, stub: bytes) -> bytes:
    dce.call(opnum, stub)
    return bytes(dce.recv())


def open_queue(dce: Any) -> bytes:
    count = len(NAME) + 1
    stub = struct.pack("<BBHBxxxIIII", 3, 0, 0, 3, 0x20000, count, 0, count)
    stub += NAME.encode("utf-16-le") + b"\0\0"
    stub += bytes(-len(stub) % 4)
    stub += struct.pack("<II16siBBHi", 1, 0, bytes(16), 1, 6, 1, 7601, 1)
    return call(dce, 2, stub)


def receive(dce: Any, handle: bytes, request: int, timeout_ms: int = 0) -> tuple[int, bytes]:
    """HRESULT and the first section."""
    more = (0, 0, 0, timeout_ms, request, 0xFFFFFFFF, 0xFFFFFFFF)
    answer = call(dce, 7, handle + bytes(4) + struct.pack("<QIIIIII", *more))
    (status,) = struct.unpack("<I", answer[-4:])
    if status:
        return status, b""
    kind, allocated, size, _, again = struct.unpack_from("<HxxIIII", answer, 28)
    assert (kind, allocated, size) == (0, size, again), (kind, allocated, size, again)
    return status, answer[48 : 48 + size]


def check(port: int) -> None:
    mapper = connected(port)
    entries = epm.hept_lookup(None, dce=mapper)
    assert len(entries) >= 4, entries
    found = epm.hept_map(HOST, REMOTE_READ, protocol="ncacn_ip_tcp", dce=connected(port))
    service = int(found.rpartition("[")[2].rstrip("]"))
    try:
        epm.hept_map(HOST, UNKNOWN, protocol="ncacn_ip_tcp", dce=connected(port))
    except DCERPCException as error:
        print("unknown interface:", error)
    else:
        raise AssertionError("an unknown interface was mapped")
    for level in (RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, RPC_C_AUTHN_LEVEL_PKT_PRIVACY):
        dce = connected(service, "pw", level)
        dce.bind(mgmt.MSRPC_UUID_MGMT)
        assert mgmt.hinq_if_ids(dce)["if_id_vector"]["count"] >= 4
    read(service)


def read(service: int) -> None:
    dce = connected(service, "pw", RPC_C_AUTHN_LEVEL_PKT_PRIVACY)
    dce.bind(REMOTE_READ)
    handle = open_queue(dce)
    assert len(handle) == 20
    for request, body in enumerate((b"one", b"x" * 100_000), 1):
        status, packet = receive(dce, handle, request)
        assert status == 0, hex(status)
        assert body in packet
        assert call(dce, 9, handle + struct.pack("<HxxI", 2, request)) == bytes(4)
    assert receive(dce, handle, 3)[0] == TIMED_OUT
    assert call(dce, 3, handle) == bytes(24)
    for password, level in (("wrong", RPC_C_AUTHN_LEVEL_PKT_PRIVACY), ("", 0)):
        bad = connected(service, password, level)
        bad.bind(REMOTE_READ)
        try:
            open_queue(bad)
        except DCERPCException as error:
            print("refused:", error)
        else:
            raise AssertionError("it was let in")


if __name__ == "__main__":
    check(int(sys.argv[2]))
    print("impacket: all is well")
