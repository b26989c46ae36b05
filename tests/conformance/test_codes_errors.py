"""Error codes, MS-MQMQ 2.4 and 1.7: each row of the catalogue prints its names and numbers."""

import json
import re
from pathlib import Path
from typing import cast

import pytest

from qm.client.errors import MqError
from qm.client.mqac import MSMQMessage, MSMQService
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Selector, SelectorKind
from qm.model.values.elements import QueueAccessType
from qm.names import errors as name_errors
from qm.names.guid import guid_text
from qm.wire.codes import CUSTOMER_BIT, ErrorCode, facility, is_failure, is_vendor_code
from tests.unit.model.world import OWN, PEER, World, packet, request

CATALOGUE = Path(__file__).parents[1] / "data" / "spec" / "mqmq.jsonl"
ROWS: dict[str, str] = {
    row["id"]: row["text"]
    for row in map(json.loads, CATALOGUE.read_text(encoding="utf-8").splitlines())
}
NAMED_CODE = re.compile(r"(MQ(?:DS)?_[A-Z_0-9]+) (0x[0-9A-F]{8})")


def check_rows(*numbers: int) -> None:
    """Compare the names and numbers that each row prints with the table, in both directions."""
    for number in numbers:
        listed = NAMED_CODE.findall(ROWS[f"MQ-2.4-{number:02}"])
        assert listed
        for name, value in listed:
            assert ErrorCode[name].value == int(value, 16)
            assert ErrorCode(int(value, 16)).name == name


@pytest.mark.spec("MQ-2.4-01", "MQ-2.4-02")
def test_informational_codes() -> None:
    check_rows(1, 2)


@pytest.mark.spec("MQ-2.4-03", "MQ-2.4-04", "MQ-2.4-05", "MQ-2.4-06", "MQ-2.4-07")
def test_queues_and_arguments() -> None:
    check_rows(3, 4, 5, 6, 7)


@pytest.mark.spec("MQ-2.4-08", "MQ-2.4-09", "MQ-2.4-10", "MQ-2.4-11", "MQ-2.4-12")
def test_names_access_and_certificates() -> None:
    check_rows(8, 9, 10, 11, 12)


@pytest.mark.spec("MQ-2.4-13", "MQ-2.4-14", "MQ-2.4-15", "MQ-2.4-16", "MQ-2.4-17")
def test_lookups_and_directory_objects() -> None:
    check_rows(13, 14, 15, 16, 17)


@pytest.mark.spec("MQ-2.4-18", "MQ-2.4-19", "MQ-2.4-20", "MQ-2.4-21", "MQ-2.4-22")
def test_transactions_buffers_and_supporting_servers() -> None:
    check_rows(18, 19, 20, 21, 22)


@pytest.mark.spec("MQ-2.4-23", "MQ-2.4-24", "MQ-2.4-25", "MQ-2.4-26", "MQ-2.4-27")
def test_missing_computers_stores_and_keys() -> None:
    check_rows(23, 24, 25, 26, 27)


@pytest.mark.spec("MQ-2.4-28", "MQ-2.4-29", "MQ-2.4-30", "MQ-2.4-31", "MQ-2.4-32")
def test_directory_and_message_faults() -> None:
    check_rows(28, 29, 30, 31, 32)


@pytest.mark.spec("MQ-2.4-33")
def test_the_facility_and_severity_of_every_code() -> None:
    for code in ErrorCode:
        assert facility(code.value) == 0x0E
        assert code.value >> 16 in (0x400E, 0xC00E)
        assert is_failure(code.value) == (code.value >> 16 == 0xC00E)
        assert code.is_information == (code.value >> 16 == 0x400E)
    # General HRESULTs occur too, and are told apart.
    assert facility(0x8007_0057) == 7
    assert facility(0x8029_0100) == 0x29
    assert is_failure(0x8007_0057)
    assert not is_failure(0)


@pytest.mark.spec("MQ-1.7-01")
def test_a_vendors_own_code_has_the_customer_bit() -> None:
    assert CUSTOMER_BIT == 0x2000_0000
    for code in ErrorCode:
        assert not is_vendor_code(code.value)
        assert is_vendor_code(code.value | 0x2000_0000)
    # So has what a program is told whose client id another one has opened: it is in no table.
    world = World()
    epochs = []
    for instance in (b"one", b"two"):
        opened = world.one(commands.OpenClient("c", "principal", 60_000, instance, ""))
        assert isinstance(opened.value, tuple)
        epochs.append(int(opened.value[3]))
    told = world.one(commands.Confirm("c", 1, epochs[0])).status
    assert told not in [code.value for code in ErrorCode]
    assert (told & 0x8000_0000, told & 0x2000_0000) == (0x8000_0000, 0x2000_0000)


@pytest.mark.spec("MQ-2.4-05", "MQ-2.4-08")
def test_names_answer_with_codes_of_the_table() -> None:
    assert ErrorCode(name_errors.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME).value == 0xC00E0014
    assert ErrorCode(name_errors.MQ_ERROR_ILLEGAL_FORMATNAME).value == 0xC00E001E
    assert ErrorCode(name_errors.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION).value == 0xC00E0020


@pytest.mark.spec("MQ-2.4-08")
def test_names_that_mean_no_queue_or_none_for_the_call_are_refused_by_codes_of_the_table() -> None:
    world = World()
    world.create("orders")
    client = world.client()

    def opened(name: str, access: QueueAccessType) -> int:
        return world.one(commands.OpenQueue(client.request(), name, access, 0, ())).status

    send, receive = QueueAccessType.SEND_ACCESS, QueueAccessType.RECEIVE_ACCESS
    for name in (
        "",
        "orders",
        "vhost\\orders",
        "DIRECT=OS:vhost",
        "PUBLIC=orders",
        "DIRECT=X:a\\b",
    ):
        found = {opened(name, send), opened(name, receive), client.send(name).status}
        assert found == {0xC00E_001E}
    # Legal names, of what cannot be sent to or read.
    machine = f"MACHINE={guid_text(OWN)}"
    for suffix in ("JOURNAL", "DEADLETTER", "DEADXACT"):
        for name in (f"{machine};{suffix}", f"DIRECT=OS:vhost\\SYSTEM$;{suffix}"):
            assert (opened(name, send), opened(name, receive)) == (0xC00E_0020, 0)
            assert client.send(name).status == 0xC00E_0020
    assert opened(f"MACHINE={guid_text(PEER)};JOURNAL", send) == 0xC00E_0020
    for name in ("MULTICAST=234.1.1.1:8001", "DIRECT=OS:vhost\\a,DIRECT=OS:vhost\\b"):
        assert opened(name, receive) == client.send(name).status == 0xC00E_0020


def created_in(world: World, path_name: str, **attributes: object) -> int:
    values = {key: encode_attribute(value) for key, value in attributes.items()}
    identifier = path_name.encode().ljust(16, b"-")[:16]
    command = commands.CreateQueue(
        request(), identifier, identifier[::-1], path_name, values, b"", ()
    )
    return world.one(command).status


@pytest.mark.spec("MQ-2.4-03", "MQ-2.4-05", "MQ-2.4-06", "MQ-2.4-14", "MQ-2.4-15")
def test_queues_that_cannot_be_made_or_changed_are_refused_by_codes_of_the_table() -> None:
    world = World()
    orders = world.create("orders")
    assert created_in(world, ".\\orders") == 0xC00E_0005
    for path_name in ("", "orders", ".\\a\\b", ".\\private$\\"):
        assert created_in(world, path_name) == 0xC00E_0014
    assert created_in(world, ".\\other", privacy_level=9) == 0xC00E_0018
    assert created_in(world, ".\\other", label=9) == 0xC00E_0019
    assert created_in(world, ".\\other", colour="red") == 0xC00E_0039

    def changed(queue_id: int, **attributes: object) -> int:
        values = {key: encode_attribute(value) for key, value in attributes.items()}
        return world.one(commands.SetQueue(request(), queue_id, values, ())).status

    assert changed(orders, transactional=True) == 0xC00E_003E
    assert changed(orders, privacy_level=9) == 0xC00E_0018
    assert changed(orders, label=9) == 0xC00E_0019
    assert changed(orders, colour="red") == 0xC00E_0039
    assert changed(9_999, label="x") == 0xC00E_0003


@pytest.mark.spec("MQ-2.4-04", "MQ-2.4-10", "MQ-2.4-17", "MQ-2.4-18", "MQ-2.4-29")
def test_reads_and_sends_are_refused_by_codes_of_the_table() -> None:
    world = World()
    client = world.client()
    world.create("orders", quota=1)
    world.create("exact", transactional=True)
    orders, exact = (f"DIRECT=OS:vhost\\{name}" for name in ("orders", "exact"))

    def open_status(name: str, access: int, share_mode: int = 0) -> int:
        opening = commands.OpenQueue(client.request(), name, access, share_mode, ())
        return world.one(opening).status

    writing = client.open(orders, QueueAccessType.SEND_ACCESS)
    alone = client.open(orders, QueueAccessType.RECEIVE_ACCESS, 1)
    assert open_status(orders, QueueAccessType.RECEIVE_ACCESS) == 0xC00E_0009
    assert open_status(orders, 77) == 0xC00E_0045
    assert client.receive_outcome((alone[0] + 99, alone[1])).status == 0xC00E_0007
    assert client.receive_outcome(writing).status == 0xC00E_0025
    reader = client.open(exact, QueueAccessType.RECEIVE_ACCESS)
    assert client.send(exact).status == 0xC00E_0050
    transaction = client.begin("t")
    assert client.send(orders, transaction=transaction).status == 0xC00E_0050
    assert client.receive_outcome(alone, transaction=transaction).status == 0xC00E_0050
    assert client.commit(transaction) == 0
    assert client.send(exact, transaction=transaction).status == 0xC00E_0051
    assert client.send(orders, raw=packet(0, body=bytes(1_100))).status == 0xC00E_0027
    gone = Selector(SelectorKind.EXACT, 1)
    for opened in (alone, reader):
        (result,) = client.receive(opened, selector=gone)
        assert result.status == 0xC00E_0088


@pytest.mark.spec("MQ-2.4-20", "MQ-2.4-32", "MQ-2.3.1.8-01")
def test_limits_of_the_table_are_answered_with_its_codes() -> None:
    world = World()

    def created(name: str, **attributes: object) -> int:
        return created_in(world, f".\\{name}", **attributes)

    assert created("long", label="l" * 125) == 0xC00E_005D
    assert created("short", label="l" * 124) == 0
    with pytest.raises(MqError) as raised:
        MSMQMessage(cast(MSMQService, None)).Label = "l" * 250
    assert raised.value.code == 0xC00E_005D
    assert created("many", **{f"a{n}": 1 for n in range(129)}) == 0xC00E_009A
    assert created("fewer", **{f"a{n}": 1 for n in range(128)}) == 0xC00E_0039
    assert created("signed", authentication=True) == 0
    assert world.client().send("DIRECT=OS:vhost\\signed").status == 0xC00E_009B
