"""A client of one connection, in bytes, against the sans-IO server side."""

import itertools

from qm.rpc.association.calls import IncomingCall
from qm.rpc.association.connection import Connection, Event, Served
from qm.rpc.association.groups import Associations
from qm.rpc.interface import Interface, Operation, interface_syntax
from qm.rpc.pdu.bind import (
    NDR20,
    Bind,
    BindAck,
    Proposal,
    Syntax,
    parse_bind_ack,
    write_bind,
)
from qm.rpc.pdu.call import parse_fault, parse_response, request_head
from qm.rpc.pdu.codes import AuthLevel, PduFlag, PduType
from qm.rpc.pdu.header import Pdu, Trailer, fragment_length, parse_pdu, write_pdu
from qm.rpc.security.provider import Provider

ECHO = Interface(
    "echo",
    interface_syntax("12345678-1234-abcd-ef00-0123456789ab", 1),
    {0: Operation("echo"), 2: Operation("other")},
)
LOCKED = Interface(
    "locked",
    interface_syntax("12345678-1234-abcd-ef00-0123456789ac", 1, 2),
    {0: Operation("echo")},
    AuthLevel.INTEGRITY,
)


class NoProviders:
    """Offers no security provider."""

    def begin(self, auth_type: int, level: AuthLevel, address: str) -> Provider | None:
        return None


def associations() -> Associations:
    numbers = itertools.count(1)
    return Associations(lambda size: next(numbers).to_bytes(size, "little"))


def served(**changes: object) -> Served:
    """Two interfaces without security, unless changed."""
    interfaces = {(one.syntax.uuid, one.syntax.major): one for one in (ECHO, LOCKED)}
    values: dict[str, object] = {
        "interfaces": interfaces,
        "providers": NoProviders(),
        "associations": associations(),
    }
    return Served(**(values | changes))  # type: ignore[arg-type]


WHOLE = int(PduFlag.FIRST | PduFlag.LAST)


class Client:
    """Writes PDUs to a `Connection`, and reads what it answers."""

    def __init__(self, offered: Served | None = None, address: str = "10.0.0.9") -> None:
        self.offered = served() if offered is None else offered
        self.connection = Connection(self.offered, address, 2103)
        self.events: list[Event] = []

    def send(self, raw: bytes) -> list[Pdu]:
        """Write bytes; return the answers."""
        self.events += self.connection.receive(raw)
        return self.answers()

    def answers(self) -> list[Pdu]:
        raw, found = self.connection.take_output(), []
        while raw:
            length = fragment_length(raw)
            found.append(parse_pdu(raw[:length]))
            raw = raw[length:]
        return found

    def bind(
        self,
        *interfaces: Interface,
        group_id: int = 0,
        flags: int = WHOLE,
        sizes: tuple[int, int] = (5840, 5840),
        trailer: Trailer | None = None,
        kind: PduType = PduType.BIND,
        transfers: tuple[Syntax, ...] = (NDR20,),
    ) -> Pdu:
        proposals = tuple(
            Proposal(k, one.syntax, transfers) for k, one in enumerate(interfaces or (ECHO,))
        )
        bind = Bind(*sizes, group_id, proposals)
        (answer,) = self.send(write_bind(kind, 1, bind, trailer, flags))
        return answer

    def bound(self, *interfaces: Interface, group_id: int = 0) -> BindAck:
        return parse_bind_ack(self.bind(*interfaces, group_id=group_id))

    def request(
        self,
        call_id: int = 2,
        stub: bytes = b"",
        *,
        opnum: int = 0,
        context_id: int = 0,
        flags: int = WHOLE,
        hint: int | None = None,
    ) -> list[Pdu]:
        body = request_head(context_id, opnum, len(stub) if hint is None else hint) + stub
        return self.send(write_pdu(PduType.REQUEST, flags, call_id, body))

    def call(self) -> IncomingCall:
        """The only call that is to be executed."""
        (call,) = self.events
        self.events = []
        assert isinstance(call, IncomingCall)
        return call

    def respond(self, call: IncomingCall, stub: bytes) -> list[Pdu]:
        self.connection.respond(call, stub)
        return self.answers()


def stub_of(answers: list[Pdu]) -> bytes:
    """The stub of a response's fragments."""
    parts = []
    for pdu in answers:
        assert pdu.kind is PduType.RESPONSE, pdu
        _, at = parse_response(pdu)
        parts.append(pdu.body[at:])
    return b"".join(parts)


def status_of(answers: list[Pdu]) -> int:
    """The status of the only answer, a fault."""
    (pdu,) = answers
    assert pdu.kind is PduType.FAULT, pdu
    assert pdu.trailer is None
    return parse_fault(pdu)
