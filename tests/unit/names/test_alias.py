"""Which names are local is decided by the alias list and by nothing else."""

import pytest

from qm.names import (
    DirectName,
    DirectSystemName,
    LocalAliases,
    PathNameError,
    parse_format_name,
    parse_path_name,
)

ALIASES = LocalAliases(
    [
        "QUORATE",
        "quorate.corp.example",
        "node1.corp.example.",
        "10.0.0.5",
        "127.0.0.11",
        "2001:db8::5",
        "[fe80::1]",
    ]
)


@pytest.mark.parametrize(
    "computer",
    [
        ".",
        "quorate",
        "Quorate",
        "QUORATE.CORP.EXAMPLE",
        "quorate.corp.example.",
        "node1.corp.example",
        "10.0.0.5",
        "::ffff:10.0.0.5",
        "127.0.0.11",
        "2001:DB8:0:0:0:0:0:5",
        "[2001:db8::5]",
        "FE80::1",
    ],
)
def test_a_listed_name_is_local_in_every_spelling(computer: str) -> None:
    assert ALIASES.is_local_computer(computer)


@pytest.mark.parametrize(
    "computer",
    [
        "",
        "..",
        "node1",
        "node1.corp",
        "quorate2",
        "localhost",
        "127.0.0.1",
        "::1",
        "10.0.0.50",
        "10.0.0.5.",
        "2001:db8::50",
        "fe80::1%eth0",
        "[10.0.0.5]",
        "computeré",
    ],
)
def test_what_is_not_listed_is_remote(computer: str) -> None:
    assert not ALIASES.is_local_computer(computer)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("DIRECT=OS:quorate\\q", True),
        ("DIRECT=OS:.\\PRIVATE$\\q", True),
        ("DIRECT=OS:10.0.0.5\\q", True),
        ("DIRECT=TCP:10.0.0.5\\q;JOURNAL", True),
        ("DIRECT=TCP:[2001:db8::5]\\PRIVATE$\\order_queue$", True),
        ("DIRECT=HTTP://quorate:8080/MSMQ\\q", True),
        ("DIRECT=HTTPS://[2001:db8::5]/MSMQ/q", True),
        ("DIRECT=TCP:10.0.0.5\\SYSTEM$;DEADXACT", True),
        ("DIRECT=OS:other\\q", False),
        ("DIRECT=TCP:10.0.0.6\\q", False),
        ("DIRECT=IPX:12:1\\q", False),
    ],
)
def test_a_direct_name_is_local_by_its_host(text: str, local: bool) -> None:
    name = parse_format_name(text)
    assert isinstance(name, DirectName | DirectSystemName)
    assert ALIASES.is_local_direct(name) is local


def test_an_ipx_address_is_never_local() -> None:
    name = parse_format_name("DIRECT=IPX:12:1\\q")
    assert isinstance(name, DirectName)
    assert not LocalAliases(["12:1"]).is_local_direct(name)


def test_a_path_name_is_local_by_its_computer() -> None:
    assert ALIASES.is_local_path(parse_path_name(".\\private$\\q"))
    assert ALIASES.is_local_path(parse_path_name("QUORATE\\q"))
    assert not ALIASES.is_local_path(parse_path_name("other\\q"))


def test_without_aliases_only_the_dot_is_local() -> None:
    nobody = LocalAliases([])
    assert nobody.is_local_computer(".")
    assert not nobody.is_local_computer("quorate")


@pytest.mark.parametrize("alias", ["", "two words", "a\\b", "a,b", "é", "x" * 257])
def test_an_alias_must_be_a_computer_name_or_an_address(alias: str) -> None:
    with pytest.raises(PathNameError):
        LocalAliases([alias])
