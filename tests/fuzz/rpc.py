"""Invariant: any bytes at all end in an answer, a fault or a closed connection, never in an error.

Each input goes to a bound connection as it is and as one PDU with its lengths in order, to every
operation as a stub, and to NTLM and SPNEGO as a token. What was read of a stub is written and read
again as the same values. Coverage-guided: `python -m tests.fuzz.rpc [libFuzzer options]`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from struct import pack_into
from typing import Any

from qm.rpc.association.calls import IncomingCall
from qm.rpc.association.connection import Connection
from qm.rpc.dcom.automation.dispatch import IDISPATCH, IENUMVARIANT
from qm.rpc.dcom.runtime.activation import IACTIVATION, ICLASSFACTORY, IREMOTESCMACTIVATOR
from qm.rpc.dcom.runtime.objref import BadObjref, parse_objref
from qm.rpc.dcom.runtime.properties import BadProperties, parse_reply, parse_wanted
from qm.rpc.dcom.runtime.rem_unknown import IREMUNKNOWN2
from qm.rpc.dcom.runtime.resolver import IOBJECTEXPORTER
from qm.rpc.endpoint_mapper import MAPPER, parse_tower
from qm.rpc.interface import Fault
from qm.rpc.mgmt import MGMT
from qm.rpc.ndr.streams import BadStub
from qm.rpc.path_names import QMCOMM
from qm.rpc.pdu.bind import NDR20, Bind, Proposal, write_bind
from qm.rpc.pdu.codes import AuthLevel, PduType
from qm.rpc.queue_formats import NotAName, WireFormat, text_of
from qm.rpc.remote_management.interface import QMMGMT
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.accounts import Account, Logons
from qm.rpc.security.ntlm import NtlmAcceptor, NtlmTarget
from qm.rpc.security.provider import SecurityRefused
from qm.rpc.security.spnego import OID_NTLM, SpnegoAcceptor
from tests.unit.rpc.dialogue import served
from tests.unit.rpc.vectors import FOLDER as VECTORS
from tests.unit.rpc.vectors import fields

FOLDER = Path("build") / "fuzz" / "rpc"
INPUT_MAX_BYTES = 4096
DURATION_DEFAULT_S = 60
INTERFACES = (
    MAPPER,
    MGMT,
    REMOTE_READ,
    QMMGMT,
    QMCOMM,
    IOBJECTEXPORTER,
    IREMOTESCMACTIVATOR,
    IACTIVATION,
    ICLASSFACTORY,
    IREMUNKNOWN2,
    IDISPATCH,
    IENUMVARIANT,
)


TARGET = NtlmTarget("QUORATE", "quorate.example.test")


class Nobody:
    """No accounts."""

    def find(self, name: str, domain: str) -> Account | None:
        return None


def bound() -> Connection:
    """A connection with a context for remote read and one for the mapper."""
    interfaces = {(one.syntax.uuid, one.syntax.major): one for one in INTERFACES}
    levels = {one.syntax.uuid: AuthLevel.NONE for one in INTERFACES}
    connection = Connection(served(interfaces=interfaces, levels=levels), "10.0.0.9", 135)
    proposals = tuple(Proposal(k, one.syntax, (NDR20,)) for k, one in enumerate(INTERFACES))
    connection.receive(write_bind(PduType.BIND, 1, Bind(5840, 5840, 0, proposals)))
    connection.take_output()
    return connection


def check_connection(raw: bytes) -> None:
    """Bytes on a fresh connection and on a bound one."""
    for connection in (Connection(served(), "10.0.0.9", 135), bound()):
        for event in connection.receive(raw):
            if isinstance(event, IncomingCall):
                check_stub(event.stub, event.order)
                connection.respond(event, b"")
        connection.take_output()
        connection.close()


def check_stub(stub: bytes, order: str = "<") -> None:
    """Bytes as the parameters of every operation, in both directions."""
    for interface in INTERFACES:
        for operation in interface.operations.values():
            for parameters in (operation.takes, operation.gives):
                try:
                    values, _ = parameters.unmarshal(stub, order)
                except BadStub:
                    continue
                written = parameters.marshal(values)
                again, _ = parameters.unmarshal(written)
                # What is not a number is not equal to itself.
                is_same = again == values or parameters.marshal(again) == written
                assert is_same, (operation.name, again, values)
                check_names(values)


def check_names(values: Any) -> None:
    """Queue formats among parameters."""
    wire = getattr(values, "queue", None)
    if isinstance(wire, WireFormat):
        try:
            text_of(wire)
        except NotAName:
            return


def check_objref(raw: bytes) -> None:
    """Bytes as an object reference, and as a blob of activation properties."""
    try:
        parse_objref(raw)
    except BadObjref:
        return
    for parse in (parse_wanted, parse_reply):
        try:
            parse(raw)
        except BadProperties:
            continue


def check_token(token: bytes) -> None:
    """Bytes as the first and as the second token of an exchange."""

    def ntlm() -> NtlmAcceptor:
        logons = Logons(Nobody(), lambda: 0.0)
        return NtlmAcceptor(AuthLevel.PRIVACY, "10.0.0.9", TARGET, logons, bytes, lambda: 0)

    for acceptor in (ntlm(), SpnegoAcceptor({OID_NTLM: ntlm})):
        for _ in range(2):
            try:
                acceptor.step(token)
            except SecurityRefused:
                break


def check_input(raw: bytes) -> None:
    """Put one input through every door."""
    check_connection(raw)
    check_objref(raw)
    if len(raw) >= 16:
        fixed = bytearray(raw)
        fixed[:2] = b"\5\0"
        fixed[4:8] = b"\x10\0\0\0"
        pack_into("<H", fixed, 8, len(fixed))
        check_connection(bytes(fixed))
    check_stub(raw)
    check_token(raw)
    try:
        parse_tower(raw)
    except Fault:
        return


def seeds() -> list[tuple[str, bytes]]:
    """Where the fuzzer starts: the guide's vectors."""
    return [
        (file.stem, bytes.fromhex(fields(file.stem)["hex"])[:INPUT_MAX_BYTES])
        for file in sorted(VECTORS.glob("*.json"))
    ]


def main(arguments: list[str]) -> int:
    """Fuzz until the time is over or an input breaks the invariant."""
    import atheris

    corpus = FOLDER / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for name, raw in seeds():
        (corpus / name).write_bytes(raw)
    atheris.instrument_all()
    options = [
        f"-max_total_time={DURATION_DEFAULT_S}",
        f"-max_len={INPUT_MAX_BYTES}",
        f"-artifact_prefix={FOLDER}/",
    ]
    is_replay = any(not argument.startswith("-") for argument in arguments)
    targets = [] if is_replay else [str(corpus)]
    atheris.Setup([sys.argv[0], *options, *arguments, *targets], check_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
