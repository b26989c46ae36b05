"""Properties, MS-MQMQ 2.3: the tables have the names, numbers, types and limits of each row."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from qm.wire.enums import ConnectionStatus, VarType
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
    property_by_name,
    property_by_number,
)

SPEC = Path(__file__).parents[1] / "data" / "spec"
ROWS: dict[str, str] = {
    row["id"]: row["text"]
    for row in map(json.loads, (SPEC / "mqmq.jsonl").read_text(encoding="utf-8").splitlines())
}
KINDS: dict[str, type[Property]] = {
    "queue": QueueProperty,
    "machine": MachineProperty,
    "site": SiteProperty,
    "network": ConnectedNetworkProperty,
    "enterprise": EnterpriseProperty,
    "user": UserProperty,
    "link": RoutingLinkProperty,
    "deletion": DeletionProperty,
    "settings": SettingsProperty,
    "computer": ComputerProperty,
    "MQUser": MqUserProperty,
    "mgmt machine": MachineManagementProperty,
    "mgmt queue": QueueManagementProperty,
}
TYPE = r"VT_\w+(?:\|VT_\w+)*"
PRINTED = re.compile(rf"(?P<name>PROPID_\w+) (?P<number>\d+)(?:,? (?P<type>{TYPE}))?")
SHARED_TYPE = re.compile(rf"({TYPE}):")
VALUE = re.compile(r'([A-Za-z_]\w*)=("[^"]*"|0x[0-9A-F]+|\d+)')
RANGE = re.compile(r"range (-?\d+)\.\.(-?\d+)(?: (KB|s)\b)?")
SINCE = re.compile(r"MSMQ (?:meaningful )?(\d)\.0\+")
LONGEST = re.compile(r"max (\d+) chars")
DEFAULT = re.compile(r"default (\d+)(?![\d.]* ?GB)")


def type_of(text: str) -> int:
    return sum(VarType[word.removeprefix("VT_")] for word in text.split("|"))


def check(row: str, form: str = "") -> list[Property]:
    """Compare what a row prints with the tables, both ways; `form` limits every value."""
    text = ROWS[row]
    printed = list(PRINTED.finditer(text))
    assert printed, f"{row} names no property"
    head = text[: printed[0].start()]
    ends = [match.start() for match in printed[1:]] + [len(text)]
    found: list[Property] = []
    for match, end in zip(printed, ends, strict=True):
        known = property_by_name(match["name"])
        assert known is not None, match["name"]
        assert property_by_number(type(known), int(match["number"])) is known
        shared = SHARED_TYPE.search(head) or re.search(rf", ({TYPE}):", text)
        kind = match["type"] or (shared and shared[1])
        assert kind, f"{row} gives {match['name']} no type"
        assert known.value.vartype == type_of(kind)
        check_limits(known, head + text[match.end() : end], has_form=bool(form))
        if form:
            assert isinstance(known.value.valid, Form)
            assert known.value.valid.name == form
        found.append(known)
    return found


def stated(row: str) -> str:
    """Return the format that a row prints last."""
    return re.split(r"(?:format|each element) ", ROWS[row])[-1].rstrip(".")


def check_limits(known: Property, text: str, *, has_form: bool) -> None:
    """Compare the limits that are printed beside a property."""
    value = known.value
    if not has_form and (named := VALUE.findall(text)):
        assert isinstance(value.valid, Choices)
        expected = {name: raw.strip('"') if raw[0] == '"' else int(raw, 0) for name, raw in named}
        assert dict(value.valid.named) == expected
    if bounds := RANGE.search(text):
        assert isinstance(value.valid, Range)
        assert (value.valid.low, value.valid.high) == (int(bounds[1]), int(bounds[2]))
        assert value.valid.unit == (bounds[3] or "")
    if since := SINCE.search(text):
        assert value.since == int(since[1])
    if longest := LONGEST.search(text):
        assert isinstance(value.valid, Form)
        assert value.valid.max_chars == int(longest[1])
    if default := DEFAULT.search(text):
        assert value.default == int(default[1])


@pytest.mark.spec("MQ-2.3-04", "MQ-2.3-05")
def test_shared_numbers_and_types() -> None:
    check("MQ-2.3-04")
    check("MQ-2.3-05")


@pytest.mark.spec("MQ-2.3-06", "MQ-2.3-07")
def test_reserved() -> None:
    assert all(isinstance(one.value.valid, Reserved) for one in check("MQ-2.3-06"))
    assert all(isinstance(one.value.valid, Reserved) for one in check("MQ-2.3-07"))


@pytest.mark.spec("MQ-2.3-08", "MQ-2.3-09", "MQ-2.3-10")
def test_descriptors_and_what_of_them_is_meant() -> None:
    check(
        "MQ-2.3-08",
        form="SECURITY_DESCRIPTOR (self-relative); ACE types limited to the NT 4.0 set",
    )
    check("MQ-2.3-09", form="SECURITY_DESCRIPTOR (self-relative)")
    for one in check("MQ-2.3-10"):
        assert isinstance(one.value.valid, Bits)
        assert [bit for _, bit in one.value.valid.named] == [1, 2, 4, 8]


@pytest.mark.spec("MQ-2.3-11", "MQ-2.3-12", "MQ-2.3-13", "MQ-2.3-18", "MQ-2.3-17")
def test_keys_identifiers_and_digests() -> None:
    check("MQ-2.3-11", form="MQDSPUBLICKEYS")
    check("MQ-2.3-12", form="SID")
    assert MachineProperty.OWNER_SID.value.since == 2
    check("MQ-2.3-13", form="16-byte MD5 of encoded certificate")
    check("MQ-2.3-18", form="X.509 certificate (RFC 3280)")
    check("MQ-2.3-17", form="SEQUENCE_INFO (16 bytes)")


@pytest.mark.spec("MQ-2.3-14", "MQ-2.3-15", "MQ-2.3-16")
def test_distinguished_names_and_flags() -> None:
    check("MQ-2.3-14", form="RFC 4514 distinguishedName")
    check("MQ-2.3-15", form="RFC 4514 distinguishedName")
    for one in check("MQ-2.3-16"):
        assert isinstance(one.value.valid, Choices)
        assert one.value.valid.named == (("no", 0), ("yes", 1))


@pytest.mark.spec(
    "MQ-2.3.1-01", "MQ-2.3.1-02", "MQ-2.3.1.21-01", "MQ-2.3.1.22-01", "MQ-2.3.1.24-01"
)
def test_a_queue_s_identity_times_and_paths() -> None:
    check("MQ-2.3.1-01")
    check("MQ-2.3.1-02")
    check("MQ-2.3.1.21-01", form="tail of a queue name longer than 64 characters")
    check("MQ-2.3.1.22-01", form="QueuePathName with FQDN computer")
    check("MQ-2.3.1.24-01", form="ldapurl (RFC 4516)")


@pytest.mark.spec("MQ-2.3.1.11-01", "MQ-2.3.1.12-01", "MQ-2.3.1.13-01", "MQ-2.3.1.14-01")
def test_a_queue_s_switches() -> None:
    check("MQ-2.3.1.11-01")
    check("MQ-2.3.1.12-01")
    check("MQ-2.3.1.13-01")
    check("MQ-2.3.1.14-01")


@pytest.mark.spec("MQ-2.3.1.5-01", "MQ-2.3.1.7-01", "MQ-2.3.1.8-01", "MQ-2.3.1.23-01")
def test_a_queue_s_limits() -> None:
    check("MQ-2.3.1.5-01")
    check("MQ-2.3.1.7-01")
    check("MQ-2.3.1.8-01")
    check("MQ-2.3.1.23-01", form='IPv4 ":" Port (2.1.6)')


@pytest.mark.spec("MQ-2.3.2-01", "MQ-2.3.2-02", "MQ-2.3.2-03", "MQ-2.3.2.4-01", "MQ-2.3.2.5-01")
def test_a_queue_manager_s_lists_and_keys() -> None:
    check("MQ-2.3.2-01")
    check("MQ-2.3.2-02")
    check("MQ-2.3.2-03")
    check("MQ-2.3.2.4-01")
    check("MQ-2.3.2.5-01", form="packed array of TA_ADDRESS")


@pytest.mark.spec(
    "MQ-2.3.2.9-01", "MQ-2.3.2.15-01", "MQ-2.3.2.18-01", "MQ-2.3.2.19-01", "MQ-2.3.2.35-01"
)
def test_a_queue_manager_s_kind() -> None:
    check("MQ-2.3.2.9-01")
    check("MQ-2.3.2.15-01", form=stated("MQ-2.3.2.15-01"))
    check("MQ-2.3.2.18-01")
    check("MQ-2.3.2.19-01")
    check("MQ-2.3.2.35-01")


@pytest.mark.spec("MQ-2.3.2.10-01", "MQ-2.3.2.14-01")
def test_a_queue_manager_s_quotas() -> None:
    check("MQ-2.3.2.10-01")
    check("MQ-2.3.2.14-01")


@pytest.mark.spec("MQ-2.3.3-01", "MQ-2.3.3-02", "MQ-2.3.3.5-01", "MQ-2.3.3.6-01")
def test_sites() -> None:
    check("MQ-2.3.3-01")
    check("MQ-2.3.3-02")
    check("MQ-2.3.3.5-01")
    check("MQ-2.3.3.6-01")


@pytest.mark.spec("MQ-2.3.4-01", "MQ-2.3.4.1-01", "MQ-2.3.5-01", "MQ-2.3.5.2-01", "MQ-2.3.5.3-01")
def test_networks_and_the_enterprise() -> None:
    check("MQ-2.3.4-01")
    check("MQ-2.3.4.1-01")
    check("MQ-2.3.5-01")
    check("MQ-2.3.5.2-01")
    (provider,) = check("MQ-2.3.5.3-01")
    assert provider.value.default == "Microsoft Enhanced RSA and AES Cryptographic Provider"


@pytest.mark.spec("MQ-2.3.6-01", "MQ-2.3.6.4-01", "MQ-2.3.7-01", "MQ-2.3.7.3-01", "MQ-2.3.7.12-01")
def test_users_and_routing_links() -> None:
    check("MQ-2.3.6-01")
    check("MQ-2.3.6.4-01", form="MQUSERSIGNCERTS")
    check("MQ-2.3.7-01")
    check("MQ-2.3.7.3-01")
    check("MQ-2.3.7.12-01")


@pytest.mark.spec("MQ-2.3.8-01", "MQ-2.3.8.1-01", "MQ-2.3.8.2-01", "MQ-2.3.8.11-01")
def test_settings() -> None:
    check("MQ-2.3.8-01")
    (name,) = check("MQ-2.3.8.1-01")
    assert name.value.default == "MSMQ Settings"
    assert isinstance(name.value.valid, Choices)
    assert [value for _, value in name.value.valid.named] == ["MSMQ Settings"]
    check("MQ-2.3.8.2-01")
    check("MQ-2.3.8.11-01")


@pytest.mark.spec(
    "MQ-2.3.9-01", "MQ-2.3.10-01", "MQ-2.3.10.2-01", "MQ-2.3.10.3-01", "MQ-2.3.10.4-01"
)
def test_users_and_computers_of_the_directory() -> None:
    check("MQ-2.3.9-01")
    check("MQ-2.3.10-01")
    check("MQ-2.3.10.2-01", form='computer name truncated to 19 chars + "$"')
    check("MQ-2.3.10.3-01", form="MS-SAMR 2.2.1.13 UF_FLAG codes")
    check("MQ-2.3.10.4-01", form="FQDN")


@pytest.mark.spec(
    "MQ-2.3.11-01", "MQ-2.3.11.1-01", "MQ-2.3.11.2-01", "MQ-2.3.11.3-01", "MQ-2.3.11.4-01"
)
def test_what_a_queue_manager_reports() -> None:
    check("MQ-2.3.11-01")
    check("MQ-2.3.11.1-01", form="format name (2.1.2, 2.1.3, 2.1.4, 2.1.6)")
    check("MQ-2.3.11.2-01", form="QueuePathName (private)")
    check("MQ-2.3.11.3-01", form=stated("MQ-2.3.11.3-01"))
    check("MQ-2.3.11.4-01")


@pytest.mark.spec("MQ-2.3.12-01", "MQ-2.3.12-02", "MQ-2.3.12-03")
def test_what_is_counted_of_a_queue() -> None:
    check("MQ-2.3.12-01")
    check("MQ-2.3.12-02")
    check("MQ-2.3.12-03")


@pytest.mark.spec(
    "MQ-2.3.12.1-01", "MQ-2.3.12.2-01", "MQ-2.3.12.3-01", "MQ-2.3.12.4-01", "MQ-2.3.12.5-01"
)
def test_what_a_queue_is_called_and_is() -> None:
    check("MQ-2.3.12.1-01", form="QueuePathName (2.1.1)")
    check("MQ-2.3.12.2-01", form="format name (2.1)")
    check("MQ-2.3.12.3-01")
    check("MQ-2.3.12.4-01")
    check("MQ-2.3.12.5-01")


@pytest.mark.spec("MQ-2.3.12.6-01", "MQ-2.3.12.11-01", "MQ-2.3.12.12-01", "MQ-2.3.12.27-01")
def test_where_a_queue_s_messages_go() -> None:
    check("MQ-2.3.12.6-01")
    check("MQ-2.3.12.11-01")
    check("MQ-2.3.12.12-01", form=stated("MQ-2.3.12.12-01"))
    check("MQ-2.3.12.27-01", form="Subqueue (2.1.1)")


@pytest.mark.spec("MQ-2.3.13-01", "MQ-2.3.13.3-01", "MQ-2.3.13.4-01")
def test_notifications_of_deletion() -> None:
    check("MQ-2.3.13-01")
    check("MQ-2.3.13.3-01")
    check("MQ-2.3.13.4-01")


@pytest.mark.spec("MQ-2.3.12.24-01", "MQ-2.3.12.25-01")
def test_columns_of_tables() -> None:
    (sources,) = check("MQ-2.3.12.24-01")
    (history,) = check("MQ-2.3.12.25-01")
    printed = re.findall(rf" ({TYPE})(?:,| \(|$|\.)", ROWS["MQ-2.3.12.24-01"])
    assert isinstance(sources.value.valid, Columns)
    assert list(sources.value.valid.vartypes) == [type_of(text) for text in printed]
    assert isinstance(history.value.valid, Columns)
    # The fourth is an array of string arrays (MQ-A29).
    assert [type_of(text) for text in ("VT_VECTOR|VT_UI4", *["VT_VECTOR|VT_I4"] * 2)] == list(
        history.value.valid.vartypes[:3]
    )
    assert history.value.valid.vartypes[3:] == (VarType.VECTOR_VARIANT,)


@pytest.mark.spec("MQ-2.3-02", "MQ-2.3-03")
def test_blocks_of_numbers_and_first_versions() -> None:
    printed_blocks = re.findall(r"(?:^|, |: )([\w ]+?) (\d[\d/-]*)", ROWS["MQ-2.3-03"])
    assert [name for name, _ in printed_blocks] == list(KINDS)
    assert set(KINDS.values()) == set(PROPERTY_KINDS)
    for name, block in printed_blocks:
        spans = [[int(end) for end in span.split("-")] for span in block.split("/")]
        numbers = [member.number for member in KINDS[name]]
        assert all(any(span[0] <= n <= span[-1] for span in spans) for n in numbers), name
        assert {end for span in spans for end in span} <= set(numbers), f"{name}: ends are taken"
    listed = json.loads((SPEC / "propids.json").read_text(encoding="utf-8"))
    everywhere = {row["name"] for row in listed if row["versions"] == "all"}
    assert {
        member.spec_name for kind in PROPERTY_KINDS for member in kind if member.value.since == 1
    } == everywhere


@pytest.mark.spec("MQ-2.3.12.25-02", "MQ-2.3.12.25-03")
def test_what_became_of_a_connection() -> None:
    names = {
        "MQ-2.3.12.25-02": ("ESTABLISHING", "ESTABLISH_PACKET_RECEIVED", "READY"),
        "MQ-2.3.12.25-03": (
            *("UNKNOWN_FAILURE", "PING_FAILURE", "CREATE_SOCKET_FAILURE", "BIND_SOCKET_FAILURE"),
            *("CONNECT_SOCKET_FAILURE", "TCP_NOT_ENABLED", "SEND_FAILURE", "SEND_NOT_READY"),
            *("DNS_FAILURE", "HTTPS_CERTIFICATE_FAILURE", "CONNECTION_LIMIT_REACHED"),
            *("REFUSED_BY_PEER", "NO_DIRECTORY_FOR_ROUTING", "LOW_MEMORY"),
        ),
    }
    for row, expected in names.items():
        printed = [int(value, 16) for value in re.findall(r"0x[0-9A-F]+", ROWS[row])]
        assert [ConnectionStatus(value).name for value in printed] == list(expected)
        is_failure = row.endswith("03")
        assert all(ConnectionStatus(value).is_failure == is_failure for value in printed)
    assert len(ConnectionStatus) == sum(map(len, names.values()))
