"""From names to addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from ipaddress import ip_address
from typing import Any

import pytest

from qm.edge.outgoing.link.destination_rules import rules_of
from qm.edge.outgoing.link.resolver import Destinations, SystemResolver, Unresolved
from qm.edge.outgoing.packets import Addressing
from qm.names.format_name import parse_format_name
from qm.names.guid import guid_text
from qm.session import ConnectionStatus, NextHop, OutgoingLink, SessionConfig
from qm.wire.guid import GUID_NULL
from qm.wire.headers.base_header import BASE_HEADER_SIZE_BYTES
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import FLAG_AH, FLAGS_OFFSET, UserHeader
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.edge.outgoing.world import PEER_GUID
from tests.unit.model.world import OWN, packet


def hops(text: str) -> list[NextHop]:
    async def ask() -> list[NextHop]:
        return await Destinations(SystemResolver(), {}).next_hops(parse_format_name(text))

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("DIRECT=TCP:10.1.2.3\\q", "10.1.2.3"),
        ("DIRECT=TCP:fd00::0:1\\q", "fd00::1"),
        ("DIRECT=OS:10.1.2.3\\q", "10.1.2.3"),
    ],
)
def test_an_address_needs_no_look_up_and_is_spelt_in_one_way(text: str, address: str) -> None:
    (hop,) = hops(text)
    assert hop.address == address


def test_a_host_name_is_looked_up_by_the_system() -> None:
    assert "127.0.0.1" in [hop.address for hop in hops("DIRECT=OS:localhost\\q")]
    with pytest.raises(Unresolved) as error:
        hops("DIRECT=OS:no-such-host.invalid\\q")
    assert error.value.status is ConnectionStatus.DNS_FAILURE
    assert "no-such-host.invalid" in str(error.value)


@pytest.mark.spec("QB-3.1.1.3.1-11", "QB-3.1.5.2.1-05")
@pytest.mark.parametrize(
    ("host", "addresses"),
    [("localhost", {"127.0.0.1", "::1"}), ("10.1.2.3", {"10.1.2.3"}), ("fd00::0:1", {"fd00::1"})],
)
def test_the_address_of_a_remote_queue_manager_is_a_number_in_text(
    host: str, addresses: set[str]
) -> None:
    link = OutgoingLink(SessionConfig())
    link.message_available()
    link.next_action()
    link.resolved(hops(f"DIRECT=TCP:{host}\\q" if ":" in host else f"DIRECT=OS:{host}\\q"))
    remote = link.remote
    assert remote is not None
    assert remote.address in addresses
    assert str(ip_address(remote.address)) == remote.address
    # Whose it is, nobody knows before it answers.
    assert (remote.host_name, remote.qm_guid) == (host, GUID_NULL)


class Silent:
    async def addresses(self, host: str) -> list[str]:
        del host
        return []


@pytest.mark.spec("DM-3.1.1.3-07", "MQ-2.3.12.25-03")
@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (lambda d: d.hops_at("empty"), ConnectionStatus.DNS_FAILURE),
        (lambda d: d.hops_of(PEER_GUID, ""), ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE),
        (
            lambda d: d.next_hops(parse_format_name("MULTICAST=234.1.1.1:8001")),
            ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE,
        ),
        (
            lambda d: d.next_hops(parse_format_name("DIRECT=http://127.0.0.1/msmq/q")),
            ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE,
        ),
    ],
)
def test_what_leads_nowhere_says_why(asked: Any, status: ConnectionStatus) -> None:
    found: Coroutine[Any, Any, list[NextHop]] = asked(Destinations(Silent(), {}))
    with pytest.raises(Unresolved) as error:
        asyncio.run(found)
    assert error.value.status is status


def test_no_packet_leaves_as_one_that_arrived_over_http() -> None:
    """Flags.AH of a message that is returned, as an earlier receiver set it."""
    to = parse_format_name("DIRECT=TCP:127.0.0.1\\q")
    addressing = Addressing(to, OWN)
    stored = bytearray(addressing.addressed(packet(1)))
    assert addressing.addressed(bytes(stored)) == stored
    at = BASE_HEADER_SIZE_BYTES + FLAGS_OFFSET
    stored[at + 3] |= FLAG_AH >> 24
    left = addressing.addressed(bytes(stored))
    assert not int.from_bytes(left[at : at + 4], "little") & FLAG_AH


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("is_numbered", [False, True])
@pytest.mark.parametrize("is_other", [False, True])
def test_what_is_signed_leaves_with_the_letters_that_were_signed(
    is_signed: bool, is_numbered: bool, is_other: bool
) -> None:
    """But receivers know a sequence by the bytes of its name."""
    addressing = Addressing(parse_format_name("DIRECT=OS:There\\PRIVATE$\\Orders"), OWN)
    own = "OS:there\\private$\\" + ("other" if is_other else "orders")
    stored = UserMessage(
        UserHeader(
            OWN,
            DirectQueueFormatName(own),
            sent_time=1,
            message_id=2,
            is_recoverable=True,
        ),
        MessagePropertiesHeader(b"body"),
        TransactionHeader(TxSequenceId.from_int(1), 1, 0) if is_numbered else None,
        SecurityHeader(signature=b"s" * 64 if is_signed else b"", sender_cert=b"c"),
        priority=0,
    )
    left = addressing.addressed(write_user_message(stored))
    message, _ = parse_user_message(left, 0, len(left))
    is_kept = is_signed and not is_numbered and not is_other
    name = own if is_kept else "OS:There\\PRIVATE$\\Orders"
    assert message.user_header.destination_queue == DirectQueueFormatName(name)
    assert message.security == stored.security


def test_a_peer_names_no_place_that_is_denied() -> None:
    """But the configuration may: its peers are where it says."""
    rules = rules_of([], [], ["192.0.2.9"])

    async def ask(peers: dict[bytes, str], text: str) -> list[NextHop]:
        destinations = Destinations(SystemResolver(), peers, rules)
        return await destinations.next_hops(parse_format_name(text))

    for text in ("DIRECT=TCP:127.0.0.1\\q", "DIRECT=OS:localhost\\q"):
        with pytest.raises(Unresolved, match=r"outgoing\.allow") as error:
            asyncio.run(ask({}, text))
        assert error.value.status is ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE
    private = f"PRIVATE={guid_text(PEER_GUID)}\\00000001"
    (hop,) = asyncio.run(ask({PEER_GUID: "127.0.0.1"}, private))
    assert hop.address == "127.0.0.1"
