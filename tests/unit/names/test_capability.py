"""What a name's kind allows, and where a direct name and a path name meet."""

import pytest
from hypothesis import given

from qm.names import (
    DirectName,
    DirectSystemName,
    FormatNameError,
    MultipleElementName,
    PathKind,
    PathName,
    PathNameError,
    PublicName,
    check_sendable,
    check_transport,
    direct_of_path,
    format_name_text,
    is_read_only,
    parse_format_name,
    parse_path_name,
    path_name_text,
    path_of_direct,
)
from tests.unit.names.strategies import path_names

G = "6B29FC40-CA47-1067-B31D-00DD010662DA"


@pytest.mark.parametrize(
    "text",
    [
        "DIRECT=OS:host\\q",
        "DIRECT=TCP:10.0.0.5\\PRIVATE$\\order_queue$",
        f"PUBLIC={G}",
        f"PRIVATE={G}\\1",
        f"DL={G}@corp.example",
        f"CONNECTOR={G};XACTONLY",
        f"DIRECT=OS:a\\q,PUBLIC={G}",
    ],
)
def test_what_can_be_sent_to(text: str) -> None:
    check_sendable(parse_format_name(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("DIRECT=OS:host\\q;JOURNAL", "read-only"),
        ("DIRECT=OS:host\\SYSTEM$;DEADXACT", "read-only"),
        (f"PUBLIC={G};JOURNAL", "read-only"),
        (f"MACHINE={G};DEADLETTER", "read-only"),
        ("DIRECT=OS:host\\q;retry", "subqueue"),
        ("DIRECT=IPX:12:1\\q", "SPX"),
        ("DIRECT=SPX:12:1\\q", "SPX"),
        ("DIRECT=HTTP://host/MSMQ\\q", "HTTP"),
        ("DIRECT=HTTPS://host/MSMQ\\q", "HTTPS"),
        ("MULTICAST=234.1.1.1:1", "PGM"),
        ("DIRECT=OS:a\\q,DIRECT=HTTP://host/MSMQ\\q", "SRMP"),
    ],
)
def test_what_cannot_be_sent_to(text: str, reason: str) -> None:
    with pytest.raises(FormatNameError, match=reason) as refused:
        check_sendable(parse_format_name(text))
    assert refused.value.code == 0xC00E0020


def test_a_name_of_several_is_read_only_when_one_of_them_is() -> None:
    journal, queue = PublicName(bytes(16), journal=True), PublicName(bytes(16))
    assert is_read_only(MultipleElementName((queue, journal)))
    assert not is_read_only(MultipleElementName((queue, queue)))


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("DIRECT=OS:host\\SYSTEM$;JOURNAL", True),
        ("DIRECT=TCP:10.0.0.5\\q;JOURNAL", True),
        ("DIRECT=IPX:12:1\\SYSTEM$;JOURNAL", False),
        ("DIRECT=HTTP://host/MSMQ\\q;JOURNAL", False),
    ],
)
def test_which_names_the_binary_protocol_reaches(text: str, reached: bool) -> None:
    name = parse_format_name(text)
    assert isinstance(name, DirectName | DirectSystemName)
    if reached:
        check_transport(name)
    else:
        with pytest.raises(FormatNameError) as refused:
            check_transport(name)
        assert refused.value.code == 0xC00E0020


@pytest.mark.parametrize(
    ("path", "direct"),
    [
        ("host\\q", "DIRECT=OS:host\\q"),
        ("host\\private$\\q", "DIRECT=OS:host\\PRIVATE$\\q"),
        ("host\\private$\\q;retry", "DIRECT=OS:host\\PRIVATE$\\q;retry"),
        ("host\\q;JOURNAL", "DIRECT=OS:host\\q;JOURNAL"),
        ("host\\system$;DEADXACT", "DIRECT=OS:host\\SYSTEM$;DEADXACT"),
    ],
)
def test_a_path_name_and_its_direct_name(path: str, direct: str) -> None:
    name = parse_format_name(direct)
    assert isinstance(name, DirectName | DirectSystemName)
    assert direct_of_path(parse_path_name(path)) == name
    assert path_of_direct(name) == parse_path_name(path)


@pytest.mark.parametrize(
    ("direct", "path"),
    [
        ("DIRECT=TCP:10.0.0.5\\PRIVATE$\\q", "10.0.0.5\\private$\\q"),
        ("DIRECT=HTTP://web1:8080/MSMQ/PRIVATE$/q", "web1\\private$\\q"),
        ("DIRECT=HTTPS://[2001:db8::5]/MSMQ\\q", "[2001:db8::5]\\q"),
        ("DIRECT=IPX:12:1\\q", "12:1\\q"),
    ],
)
def test_the_path_of_other_protocols_is_that_of_the_host(direct: str, path: str) -> None:
    name = parse_format_name(direct)
    assert isinstance(name, DirectName | DirectSystemName)
    assert path_name_text(path_of_direct(name)) == path


@given(path_names.filter(lambda path: path.kind is not PathKind.SYSTEM))
def test_every_path_name_has_a_direct_name(path: PathName) -> None:
    direct = direct_of_path(path)
    assert parse_format_name(format_name_text(direct)) == direct
    assert path_of_direct(direct) == path


def test_a_system_path_needs_a_system_queue() -> None:
    with pytest.raises(PathNameError):
        direct_of_path(parse_path_name("host\\system$;other"))
