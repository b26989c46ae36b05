"""Direct format names, MS-MQMQ 2.1.2, one test per sentence of the grammar."""

import pytest

from qm.names import (
    DirectAddress,
    DirectName,
    DirectProtocol,
    DirectSystemName,
    FormatNameError,
    SystemQueue,
    check_sendable,
    format_name_key,
    format_name_text,
    parse_format_name,
)

P = DirectProtocol
OS = DirectAddress(P.OS, "host")
ADDRESS_OF_PROTOCOL = {
    P.TCP: "10.0.0.5",
    P.OS: "host",
    P.HTTP: "//host/MSMQ",
    P.HTTPS: "//host/MSMQ",
    P.IPX: "00000012:00A0234F7500",
    P.SPX: "00000012:00A0234F7500",
}


def direct(text: str) -> DirectName:
    name = parse_format_name(text)
    assert isinstance(name, DirectName)
    return name


def is_format_name(text: str) -> bool:
    try:
        parse_format_name(text)
    except FormatNameError as error:
        if error.code != 0xC00E001E:
            raise
        return False
    return True


@pytest.fixture(autouse=True)
def _what_all_rows_stand_on() -> None:
    """The parts of a direct name that every protocol shares."""
    for protocol, address in ADDRESS_OF_PROTOCOL.items():
        for separator in "\\/" if protocol.is_http else "\\":
            where = f"DIRECT={protocol.value}:{address}{separator}"
            name = direct(f"{where}PRIVATE${separator}q;s")
            assert (name.queue, name.private, name.subqueue, name.journal) == (
                "q",
                True,
                "s",
                False,
            )
            assert format_name_text(name) == f"{where}PRIVATE${separator}q;s"
            plain = direct(f"{where}q")
            assert plain == DirectName(plain.address, "q")
            assert plain == DirectName(plain.address, "q", False, None, False)
            assert isinstance(parse_format_name(f"{where}SYSTEM$;DEADXACT"), DirectSystemName)
            for other in ("PRIVATE$", "SYSTEM$", "SYSTEM$;"):
                assert not is_format_name(where + other)
    for text in ("HTTP://host/MSMQ\\PRIVATE$/q", "HTTP://host/MSMQ/PRIVATE$\\q"):
        assert not is_format_name(f"DIRECT={text}")
    with pytest.raises(FormatNameError, match="no protocol; write"):
        parse_format_name("DIRECT=host\\q")


@pytest.mark.spec("MQ-2.1.2-02", "MQ-2.1.2-03")
def test_private_and_public_forms() -> None:
    for suffix, journal in (("", False), (";JOURNAL", True)):
        private = direct(f"DIRECT=OS:host\\PRIVATE$\\q{suffix}")
        assert private == DirectName(OS, "q", private=True, journal=journal)
        public = direct(f"DIRECT=OS:host\\q{suffix}")
        assert public == DirectName(OS, "q", private=False, journal=journal)
        assert format_name_text(private) == f"DIRECT=OS:host\\PRIVATE$\\q{suffix}"
        assert format_name_text(public) == f"DIRECT=OS:host\\q{suffix}"
    lower = "direct=os:host\\private$\\q;journal"
    assert direct(lower) == DirectName(OS, "q", private=True, journal=True)
    assert format_name_key(direct(lower)) == lower
    for text in (
        "OS:host\\q",
        "DIRECT OS:host\\q",
        "DIRECT=host\\q",
        "DIRECT=OS:host",
        "DIRECT=OS:host\\",
        "DIRECT=OS:host\\PRIVATE$\\",
        "DIRECT=OS:host\\PRIVATE$",
        "DIRECT=OS:host\\PRIVATE$;q",
        "DIRECT=OS:host\\q;DEADLETTER",
        "DIRECT=OS:host\\q;JOURNAL;JOURNAL",
    ):
        assert not is_format_name(text)


@pytest.mark.parametrize("word", ["JOURNAL", "DEADLETTER", "DEADXACT"])
@pytest.mark.spec("MQ-2.1.2-04")
def test_machine_form(word: str) -> None:
    text = f"DIRECT=OS:host\\SYSTEM$;{word}"
    assert parse_format_name(text) == DirectSystemName(OS, SystemQueue(word))
    assert parse_format_name(text.lower()) == DirectSystemName(OS, SystemQueue(word))
    assert format_name_text(DirectSystemName(OS, SystemQueue(word))) == text
    for other in ("", "XACTONLY", "q", f"{word};JOURNAL", f"{word}X"):
        assert not is_format_name(f"DIRECT=OS:host\\SYSTEM$;{other}")
    assert not is_format_name(f"DIRECT=OS:host\\SYSTEM$\\{word}")


@pytest.mark.spec("MQ-2.1.2-05")
def test_protocol_words() -> None:
    for word in ("TCP", "OS", "HTTP", "HTTPS", "IPX"):
        name = direct(f"DIRECT={word}:{ADDRESS_OF_PROTOCOL[P(word)]}\\q")
        assert name.address.protocol.value == word
        assert format_name_text(name) == f"DIRECT={word}:{ADDRESS_OF_PROTOCOL[P(word)]}\\q"
        assert direct(f"DIRECT={word.lower()}:{ADDRESS_OF_PROTOCOL[P(word)]}\\q") == name
    # MQ-A35: SPX is what MS-MQQB writes for IPX, the only word beside the five.
    spx = direct(f"DIRECT=SPX:{ADDRESS_OF_PROTOCOL[P.SPX]}\\q")
    assert spx.address.protocol is P.SPX
    assert {protocol.value for protocol in P} == {"TCP", "OS", "HTTP", "HTTPS", "IPX", "SPX"}
    for word in ("UDP", "NETBIOS", "TCPX", "", "HTTPX", "SPXX", " TCP", "TCP "):
        assert not is_format_name(f"DIRECT={word}:10.0.0.5\\q")


@pytest.mark.spec("MQ-2.1.2-06")
def test_a_tcp_address_is_an_ip_literal() -> None:
    for address in ("10.0.0.5", "0.0.0.0", "255.255.255.255", "2001:db8::5", "[fe80::1]", "::"):
        name = direct(f"DIRECT=TCP:{address}\\q")
        assert name.address == DirectAddress(P.TCP, address)
        assert format_name_text(name) == f"DIRECT=TCP:{address}\\q"
    same = format_name_key(direct("DIRECT=TCP:2001:DB8:0::5\\q"))
    assert same == format_name_key(direct("DIRECT=TCP:[2001:db8::5]\\q"))
    for address in ("host", "", "10.0.0.256", "10.0.0", "10.0.0.05", "[10.0.0.5]", "fe80::1%1"):
        assert not is_format_name(f"DIRECT=TCP:{address}\\q")


@pytest.mark.spec("MQ-2.1.2-07")
def test_an_ipx_address_is_read_and_refused_for_transport() -> None:
    name = direct("DIRECT=IPX:00000012:00A0234F7500\\q")
    assert name.address == DirectAddress(P.IPX, "00000012:00A0234F7500")
    assert format_name_text(name) == "DIRECT=IPX:00000012:00A0234F7500\\q"
    # MQ-A35: the word SPX and the period are read alike.
    for other in ("IPX:12:a0234f7500", "SPX:12:A0234F7500", "SPX:00000012.00A0234F7500"):
        assert format_name_key(direct(f"DIRECT={other}\\q")) == format_name_key(name)
    for address in ("12", "12:", ":1", "12:GG", "123456789:1", "1:1234567890ABC", "1:2:3", "1-2"):
        assert not is_format_name(f"DIRECT=IPX:{address}\\q")
    with pytest.raises(FormatNameError, match="SPX") as refused:
        check_sendable(name)
    assert refused.value.code == 0xC00E0020


@pytest.mark.spec("MQ-2.1.2-08")
def test_an_os_address_is_any_computer_name() -> None:
    for host in ("host", "HOST-1.corp.example", "10.0.0.5", ".", "2001:db8::5", "c" * 256, "a_b$"):
        name = direct(f"DIRECT=OS:{host}\\q")
        assert name.address == DirectAddress(P.OS, host)
        assert format_name_text(name) == f"DIRECT=OS:{host}\\q"
    for host in ("", "a b", "c" * 257, "a/b", "a;b", "h\u00f6st"):
        assert not is_format_name(f"DIRECT=OS:{host}\\q")


@pytest.mark.parametrize(("protocol", "default"), [(P.HTTP, 80), (P.HTTPS, 443)])
@pytest.mark.spec("MQ-2.1.2-09", "MQ-2.1.2-10", "MQ-2.1.2-11")
def test_http_addresses(protocol: DirectProtocol, default: int) -> None:
    def read(address: str) -> DirectAddress:
        return direct(f"DIRECT={protocol.value}:{address}\\q").address

    assert read("//host/MSMQ") == DirectAddress(protocol, "host")
    assert read("//10.0.0.5/msmq") == DirectAddress(protocol, "10.0.0.5")
    assert read("//[2001:db8::5]/MSMQ") == DirectAddress(protocol, "[2001:db8::5]")
    assert read("//host:8080/MSMQ") == DirectAddress(protocol, "host", 8080)
    assert read("//[2001:db8::5]:0/MSMQ") == DirectAddress(protocol, "[2001:db8::5]", 0)
    assert read("//host/MSMQ").effective_port == default
    assert read("//host:/MSMQ").effective_port == default
    assert read("//host:65535/MSMQ").effective_port == 65535
    assert read("//host:0000000080/MSMQ").effective_port == 80
    texts = (f"DIRECT={protocol.value}://host:{port}/MSMQ\\q" for port in ("", default))
    assert len({format_name_key(direct(text)) for text in texts}) == 1
    text = f"DIRECT={protocol.value}://host:8080/MSMQ\\PRIVATE$\\q;JOURNAL"
    assert format_name_text(direct(text)) == text
    for address in (
        "host/MSMQ",
        "/host/MSMQ",
        "//host",
        "//host/",
        "//host/MSMQX",
        "//host/queues",
        "///MSMQ",
        "//:80/MSMQ",
        "//host:8x/MSMQ",
        "//host:-1/MSMQ",
        "//host:65536/MSMQ",
        "//host:99999999999999999999/MSMQ",
        "//2001:db8::5/MSMQ",
        "//[host]/MSMQ",
        "//[2001:db8::5/MSMQ",
        "//[2001:db8::5]80/MSMQ",
    ):
        assert not is_format_name(f"DIRECT={protocol.value}:{address}\\q")


@pytest.mark.parametrize("where", ["TCP:10.0.0.5", "OS:host", "HTTP://host/MSMQ"])
@pytest.mark.spec("MQ-2.1.2-12")
def test_a_queue_name_has_the_characters_that_the_path_rule_allows(where: str) -> None:
    for code in range(0x80):
        is_allowed = 0x21 <= code and chr(code) not in '\\;"+,'
        for tail in ("q", "PRIVATE$\\q", "q;s", "PRIVATE$\\q;s"):
            assert is_format_name(f"DIRECT={where}\\{tail}{chr(code)}") == is_allowed
    for reserved in ("PRIVATE$", "system$"):
        assert not is_format_name(f"DIRECT={where}\\{reserved}")


@pytest.mark.parametrize("where", ["TCP:10.0.0.5", "OS:host", "HTTP://host/MSMQ"])
@pytest.mark.spec("MQ-2.1.2-12")
def test_a_queue_name_obeys_the_path_rule_and_may_carry_a_subqueue(where: str) -> None:
    for private in ("", "PRIVATE$\\"):
        name = direct(f"DIRECT={where}\\{private}{'q' * 124};{'s' * 32}")
        assert (name.queue, name.subqueue) == ("q" * 124, "s" * 32)
        assert name.private == bool(private)
        assert format_name_text(name) == f"DIRECT={where}\\{private}{'q' * 124};{'s' * 32}"
        for tail in (
            "q" * 125,
            f"q;{'s' * 33}",
            "q;",
            "q;s;t",
            "q;sub;JOURNAL",
            'a"b',
            "a+b",
            "a b",
            "q;a+b",
            "q;XACTONLY",
        ):
            assert not is_format_name(f"DIRECT={where}\\{private}{tail}")
