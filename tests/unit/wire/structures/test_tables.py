"""The tables in Python source say what the catalogue's tables say, row by row."""

import json
from pathlib import Path
from typing import Any

import pytest

from qm.names import errors as name_errors
from qm.names.format_name import ELEMENTS_MAX
from qm.wire.access_mask import (
    CONNECTED_NETWORK_GENERIC_MAPPING,
    ENTERPRISE_GENERIC_MAPPING,
    GENERIC_ALL,
    GENERIC_EXECUTE,
    GENERIC_READ,
    GENERIC_WRITE,
    MACHINE_GENERIC_MAPPING,
    QUEUE_GENERIC_MAPPING,
    SITE_GENERIC_MAPPING,
    GenericMapping,
    MachineAccess,
    QueueAccess,
)
from qm.wire.codes import (
    CUSTOMER_BIT,
    FACILITY_MSMQ,
    MQ_OK,
    ErrorCode,
    error_code_text,
    facility,
    is_failure,
    is_vendor_code,
)
from qm.wire.enums import (
    ALGORITHMS_OF_PRIVACY_LEVEL,
    ConnectionStatus,
    EncryptionAlgorithm,
    HashAlgorithm,
    PrivacyLevel,
    SecurityInformation,
    VarType,
)
from qm.wire.limits import MQF_ELEMENTS_MAX
from qm.wire.property_id import (
    PROPERTY_KINDS,
    Bits,
    Choices,
    Columns,
    ComputerProperty,
    ConnectedNetworkProperty,
    DeletionProperty,
    EnterpriseProperty,
    Form,
    MachineManagementProperty,
    MachineProperty,
    MqUserProperty,
    Property,
    QueueManagementProperty,
    QueueProperty,
    Range,
    Reserved,
    RoutingLinkProperty,
    SettingsProperty,
    SiteProperty,
    UserProperty,
    Valid,
    property_by_name,
    property_by_number,
)

SPEC = Path(__file__).parents[3] / "data" / "spec"
ERRORS: dict[str, str] = json.loads((SPEC / "errors.json").read_text())
PROPIDS: list[dict[str, Any]] = json.loads((SPEC / "propids.json").read_text())
KIND_OF_OBJECT: dict[str, type[Property]] = {
    "queue": QueueProperty,
    "machine": MachineProperty,
    "site": SiteProperty,
    "connected_network": ConnectedNetworkProperty,
    "enterprise": EnterpriseProperty,
    "user": UserProperty,
    "routing_link": RoutingLinkProperty,
    "settings": SettingsProperty,
    "mquser": MqUserProperty,
    "computer": ComputerProperty,
    "mgmt_machine": MachineManagementProperty,
    "mgmt_queue": QueueManagementProperty,
    "deletion_notification": DeletionProperty,
}


def test_error_codes_are_the_catalogues() -> None:
    assert {code.name: code.value for code in ErrorCode} == {
        name: int(value, 16) for name, value in ERRORS.items()
    }
    assert len(ErrorCode) == 145


def test_the_codes_of_names_are_in_the_table() -> None:
    for name in ("ILLEGAL_QUEUE_PATHNAME", "ILLEGAL_FORMATNAME"):
        assert getattr(name_errors, f"MQ_ERROR_{name}") == ErrorCode[f"MQ_ERROR_{name}"]
    unsupported = name_errors.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert unsupported == ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION


def test_names_and_packets_have_one_limit_of_elements() -> None:
    assert ELEMENTS_MAX == MQF_ELEMENTS_MAX


def test_the_bits_of_an_error_code() -> None:
    assert not is_failure(MQ_OK)
    for code in ErrorCode:
        assert facility(code) == FACILITY_MSMQ
        assert is_failure(code) == (not code.is_information)
        assert code.is_information == code.name.startswith("MQ_INFORMATION_")
        assert not is_vendor_code(code)
        assert is_vendor_code(code | CUSTOMER_BIT)
        assert error_code_text(code) == code.name
    assert error_code_text(MQ_OK) == "MQ_OK"
    assert error_code_text(0x80070057) == "0x80070057"


@pytest.mark.parametrize("row", PROPIDS, ids=lambda row: row["name"])
def test_a_property_is_the_catalogues(row: dict[str, Any]) -> None:
    kind = KIND_OF_OBJECT[row["object"]]
    found = property_by_name(row["name"])
    assert found is not None
    assert type(found) is kind
    assert found is property_by_number(kind, row["id"])
    assert found.number == row["id"]
    assert found.spec_name == row["name"]
    assert found.section == row["section"]
    assert found.value.vartype == row["vt"]
    default = row["default"]
    unset = isinstance(default, str) and default.startswith("unset")
    assert found.value.default == (None if unset else default)
    since = 1 if row["versions"] == "all" else int(row["versions"].split(".0+")[0][-1])
    assert found.value.since == since
    assert agrees(found.value.valid, row["valid"] or {})


def agrees(valid: Valid | None, listed: dict[str, Any]) -> bool:
    """Compare the typed limits of a property with the catalogue's."""
    match valid:
        case None:
            return not listed
        case Reserved():
            return listed == {"reserved": True}
        case Range(low, high, unit):
            return listed == {"range": [low, high]} | ({"unit": unit} if unit else {})
        case Bits(named):
            return listed == {"bitmask": dict(named)}
        case Choices(named):
            expected: dict[str, object] = listed.get("enum", {"CONST": listed.get("const")})
            return dict(named) == expected
        case Columns(vartypes):
            types = [type_of(text) for text in listed["tuple"]]
            return [vartype.value for vartype in vartypes] == types
        case Form(name, max_chars):
            texts = [text for text in listed.values() if isinstance(text, str)]
            return max_chars == listed.get("max_chars") and (
                any(text in name for text in texts) or name == "text" or "write_only" in listed
            )


def type_of(text: str) -> int:
    if "VECTOR of VECTOR" in text.replace("VT_", ""):
        # MQ-A29: the list of address lists is an array of PROPVARIANTs.
        return VarType.VECTOR_VARIANT
    return sum(VarType[word.removeprefix("VT_")] for word in text.split("|"))


def test_the_table_holds_nothing_else() -> None:
    assert sum(map(len, PROPERTY_KINDS)) == len(PROPIDS) == 186
    assert set(PROPERTY_KINDS) == set(KIND_OF_OBJECT.values())
    assert property_by_name("PROPID_Q_NONE") is None
    assert property_by_number(QueueProperty, 1) is None


def test_one_number_means_two_properties_of_two_kinds() -> None:
    machine = property_by_number(MachineManagementProperty, 1)
    queue = property_by_number(QueueManagementProperty, 1)
    assert machine is MachineManagementProperty.ACTIVEQUEUES
    assert queue is QueueManagementProperty.PATHNAME
    assert len({machine, queue}) == 2


def test_connection_states_are_the_catalogues() -> None:
    (row,) = (row for row in PROPIDS if row["name"] == "PROPID_MGMT_QUEUE_CONNECTION_HISTORY")
    listed = {name.upper(): value for name, value in row["valid"]["status_enum"].items()}
    assert {state.name: state.value for state in ConnectionStatus} == listed
    assert [state.name for state in ConnectionStatus if not state.is_failure] == [
        "ESTABLISHING",
        "ESTABLISH_PACKET_RECEIVED",
        "READY",
    ]


def test_algorithms_and_levels() -> None:
    assert {member.name: member.value for member in HashAlgorithm} == {
        "MD2": 0x8001,
        "MD4": 0x8002,
        "MD5": 0x8003,
        "SHA1": 0x8004,
        "SHA256": 0x800C,
        "SHA512": 0x800E,
    }
    assert {level.value for level in PrivacyLevel} == {0, 1, 3, 5}
    assert {
        level.value: {algorithm.value for algorithm in allowed}
        for level, allowed in ALGORITHMS_OF_PRIVACY_LEVEL.items()
    } == {0: set(), 1: {0x6602, 0x6801}, 3: {0x6602, 0x6801}, 5: {0x660E, 0x660F, 0x6610}}
    assert len(EncryptionAlgorithm) == 5
    assert [part.value for part in SecurityInformation] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("mapping", "read", "write", "everything"),
    [
        (MACHINE_GENERIC_MAPPING, 0x200E3, 0x20024, 0xF00F7),
        (QUEUE_GENERIC_MAPPING, 0x2002B, 0x20024, 0xF003F),
        (SITE_GENERIC_MAPPING, 0x20020, 0x20024, 0xF0037),
        (ENTERPRISE_GENERIC_MAPPING, 0x20021, 0x20027, 0xF0037),
        (CONNECTED_NETWORK_GENERIC_MAPPING, 0x20020, 0, 0xF0031),
    ],
)
def test_generic_rights(mapping: GenericMapping, read: int, write: int, everything: int) -> None:
    assert mapping.map_generic(GENERIC_READ) == read
    assert mapping.map_generic(GENERIC_WRITE) == write
    assert mapping.map_generic(GENERIC_ALL) == everything
    assert mapping.map_generic(GENERIC_EXECUTE) == 0
    assert mapping.map_generic(GENERIC_READ | GENERIC_WRITE | 0x8) == read | write | 0x8
    assert mapping.map_generic(0x10000) == 0x10000


def test_composite_rights() -> None:
    assert MachineAccess.RECEIVE_DEADLETTER_MESSAGE.value == 0x3
    assert MachineAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE.value == 0xC0
    assert MachineAccess.MACHINE_WORLD_RIGHTS.value == 0x20020
    assert QueueAccess.RECEIVE_MESSAGE.value == 0x3
    assert QueueAccess.RECEIVE_JOURNAL_MESSAGE.value == 0xA
