"""Format names that are not direct, MS-MQMQ 2.1.3 to 2.1.7."""

import pytest

from qm.names import (
    ConnectorName,
    DistributionListName,
    FormatName,
    FormatNameError,
    MachineName,
    MulticastName,
    MultipleElementName,
    PrivateName,
    PublicName,
    SystemQueue,
    format_name_key,
    format_name_text,
    is_read_only,
    parse_format_name,
    parse_multiple_element_name,
)

# Text order and packet order differ in the first three groups.
TEXT = "6B29FC40-CA47-1067-B31D-00DD010662DA"
GUID = bytes.fromhex("40fc296b 47ca 6710 b31d 00dd010662da")
ELEMENTS: dict[str, FormatName] = {
    f"PUBLIC={TEXT}": PublicName(GUID),
    f"PRIVATE={TEXT}\\0000000F": PrivateName(GUID, 0xF),
    f"DL={TEXT}": DistributionListName(GUID),
    f"CONNECTOR={TEXT}": ConnectorName(GUID),
    "MULTICAST=234.1.1.1:8001": MulticastName("234.1.1.1", 8001),
    "DIRECT=OS:host\\q": parse_format_name("DIRECT=OS:host\\q"),
}


def is_format_name(text: str) -> bool:
    try:
        parse_format_name(text)
    except FormatNameError as error:
        if error.code != 0xC00E001E:
            raise
        return False
    return True


READ_ONLY: dict[str, FormatName] = {
    f"PUBLIC={TEXT};JOURNAL": PublicName(GUID, journal=True),
    f"PRIVATE={TEXT}\\0000000F;JOURNAL": PrivateName(GUID, 0xF, journal=True),
    f"MACHINE={TEXT};DEADXACT": MachineName(GUID, SystemQueue.DEADXACT),
}


@pytest.fixture(autouse=True)
def _what_all_rows_stand_on() -> None:
    """Every kind is read and printed: a row of one kind stands on the table of all."""
    for text, name in {**ELEMENTS, **READ_ONLY}.items():
        assert parse_format_name(text) == name
        assert format_name_text(name) == text
        assert is_read_only(name) == (text in READ_ONLY)
    assert PublicName(GUID) == PublicName(GUID, journal=False)
    assert PrivateName(GUID, 1) == PrivateName(GUID, 1, journal=False)
    assert ConnectorName(GUID) == ConnectorName(GUID, transactional=False)
    assert DistributionListName(GUID) == DistributionListName(GUID, "")
    longest = f"DIRECT=HTTP://host:{'0' * 484}80/MSMQ\\q"
    assert len(longest) == 512
    assert is_format_name(longest)
    assert not is_format_name(longest.replace("0", "00", 1))


@pytest.mark.spec("MQ-2.1.3-01", "MQ-2.1.3-02")
def test_a_public_name_is_a_guid_without_braces() -> None:
    for spelling in (TEXT, TEXT.lower(), TEXT.title()):
        assert parse_format_name(f"PUBLIC={spelling}") == PublicName(GUID)
        assert parse_format_name(f"public={spelling}") == PublicName(GUID)
    assert format_name_text(PublicName(GUID)) == f"PUBLIC={TEXT}"
    assert format_name_key(PublicName(GUID)) == f"public={TEXT.lower()}"
    assert parse_format_name(f"PUBLIC={TEXT};JOURNAL") == PublicName(GUID, journal=True)
    assert format_name_text(PublicName(GUID, journal=True)) == f"PUBLIC={TEXT};JOURNAL"
    for guid in (
        f"{{{TEXT}}}",
        TEXT.replace("-", ""),
        TEXT[:-1],
        f"{TEXT}0",
        TEXT.replace("D", "G"),
        TEXT.replace("-", "_"),
        TEXT.replace("6B29FC40-", "6B29FC4-0"),
        TEXT.replace("B", "\uff22"),
        "",
    ):
        assert not is_format_name(f"PUBLIC={guid}")
    for text in (f"PUBLIC:{TEXT}", f"PUBLIC={TEXT}\\1", f"PUBLIC={TEXT};DEADXACT"):
        assert not is_format_name(text)


@pytest.mark.spec("MQ-2.1.4-01")
def test_a_private_name_is_a_computer_and_up_to_eight_digits() -> None:
    for digits, number in (("0", 0), ("f", 15), ("0000000F", 15), ("FfFfFfFf", 0xFFFF_FFFF)):
        assert parse_format_name(f"PRIVATE={TEXT}\\{digits}") == PrivateName(GUID, number)
        assert parse_format_name(f"Private={TEXT}\\{digits};journal") == PrivateName(
            GUID, number, journal=True
        )
        text = f"PRIVATE={TEXT}\\{number:08X}"
        assert format_name_text(PrivateName(GUID, number)) == text
        assert format_name_text(PrivateName(GUID, number, journal=True)) == f"{text};JOURNAL"
    same = parse_format_name(f"PRIVATE={TEXT}\\F")
    assert format_name_key(same) == format_name_key(PrivateName(GUID, 0xF))
    for tail in ("", "\\", "\\123456789", "\\G", "/1", "\\-1", "\\1;", "\\1;retry", "\\1;DEADXACT"):
        assert not is_format_name(f"PRIVATE={TEXT}{tail}")


@pytest.mark.spec("MQ-2.1.5-01", "MQ-2.1.5-02")
def test_a_distribution_list_may_name_its_domain() -> None:
    assert parse_format_name(f"DL={TEXT}") == DistributionListName(GUID)
    domains = ["corp.example", "d", "d" * 255, "a@b;c\\d"]
    domains += [f"a{chr(code)}" for code in range(0x21, 0x7F) if chr(code) != ","]
    for domain in domains:
        name = DistributionListName(GUID, domain)
        assert parse_format_name(f"dl={TEXT}@{domain}") == name
        assert format_name_text(name) == f"DL={TEXT}@{domain}"
    for tail in ("@", f"@{'d' * 256}", "@a b", "@\x7f", "@\u00e9", ";JOURNAL", "corp"):
        assert not is_format_name(f"DL={TEXT}{tail}")
    # MQ-A41: a comma ends the name, and what follows is another element.
    assert not is_format_name(f"DL={TEXT}@a,b")
    assert parse_format_name(f"DL={TEXT}@a,PUBLIC={TEXT}") == MultipleElementName(
        (DistributionListName(GUID, "a"), PublicName(GUID))
    )
    with pytest.raises(FormatNameError):
        format_name_text(DistributionListName(GUID, "a,b"))


@pytest.mark.parametrize("word", ["JOURNAL", "DEADLETTER", "DEADXACT"])
@pytest.mark.spec("MQ-2.1.6-01")
def test_a_machine_name_is_a_computers_journal_or_dead_letter_queue(word: str) -> None:
    name = MachineName(GUID, SystemQueue(word))
    assert parse_format_name(f"MACHINE={TEXT};{word}") == name
    assert parse_format_name(f"machine={TEXT};{word.lower()}") == name
    assert format_name_text(name) == f"MACHINE={TEXT};{word}"
    assert is_read_only(name)
    # MQ-A1: the bare form names no queue that could be opened.
    for tail in ("", ";", ";XACTONLY", ";q", f";{word};{word}", f"\\{word}"):
        assert not is_format_name(f"MACHINE={TEXT}{tail}")


@pytest.mark.spec("MQ-2.1.6-02")
def test_a_connector_name_is_one_of_two_queues() -> None:
    for suffix, transactional in (("", False), (";XACTONLY", True)):
        name = ConnectorName(GUID, transactional)
        assert parse_format_name(f"CONNECTOR={TEXT}{suffix}") == name
        assert parse_format_name(f"connector={TEXT}{suffix.lower()}") == name
        assert format_name_text(name) == f"CONNECTOR={TEXT}{suffix}"
    for tail in (";JOURNAL", ";", ";XACTONLY;XACTONLY", "\\1"):
        assert not is_format_name(f"CONNECTOR={TEXT}{tail}")


@pytest.mark.spec("MQ-2.1.6-03", "MQ-2.1.6-04", "MQ-2.1.6-05")
def test_a_multicast_name_is_a_class_d_address_and_a_port() -> None:
    for octet in range(256):
        assert is_format_name(f"MULTICAST={octet}.0.0.0:1") == (224 <= octet <= 239)
        name = parse_format_name(f"multicast=224.{octet}.{255 - octet}.{octet}:80")
        assert name == MulticastName(f"224.{octet}.{255 - octet}.{octet}", 80)
    for port in (0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10000, 59999, 60000, 65535):
        name = MulticastName("234.1.1.1", port)
        assert parse_format_name(f"MULTICAST=234.1.1.1:{port}") == name
        assert format_name_text(name) == f"MULTICAST=234.1.1.1:{port}"
    for port_text in ("", "00", "080", "65536", "66000", "70000", "100000", "-1", "+1", "1x"):
        assert not is_format_name(f"MULTICAST=234.1.1.1:{port_text}")
    for address in ("224.0.0.01", "224.0.0.256", "224.00.0.1", "224.0.0", "224.0.0.1.1", "", "x"):
        assert not is_format_name(f"MULTICAST={address}:1")
    for text in ("MULTICAST=224.0.0.1", "MULTICAST=224.0.0.1:1:2", "MULTICAST=224.0.0.1:1;JOURNAL"):
        assert not is_format_name(text)


@pytest.mark.spec("MQ-2.1.7-01", "MQ-2.1.7-02")
def test_a_multiple_element_name_joins_elements_of_six_kinds_by_single_commas() -> None:
    text = ",".join(ELEMENTS)
    name = parse_format_name(text)
    assert isinstance(name, MultipleElementName)
    assert list(name.elements) == list(ELEMENTS.values())
    assert format_name_text(name) == text
    assert format_name_key(name) == text.lower()
    for element, value in ELEMENTS.items():
        lone = parse_multiple_element_name(element)
        assert lone.elements == (value,)
        assert format_name_text(lone) == element
        for broken in (
            f"{element},",
            f",{element}",
            f"{element},,{element}",
            f"{element}, {element}",
        ):
            assert not is_format_name(broken)
    for other in (f"MACHINE={TEXT};JOURNAL", "host\\q", "q"):
        assert not is_format_name(f"{text},{other}")
    with pytest.raises(FormatNameError):
        parse_multiple_element_name(f"MACHINE={TEXT};JOURNAL")
    machine = MachineName(GUID, SystemQueue.JOURNAL)
    for elements in ((machine,), (PublicName(GUID), machine), ()):
        with pytest.raises(FormatNameError):
            format_name_text(MultipleElementName(elements))


@pytest.mark.parametrize(
    "read_only",
    [
        f"PUBLIC={TEXT};JOURNAL",
        f"PRIVATE={TEXT}\\1;JOURNAL",
        "DIRECT=OS:host\\q;JOURNAL",
        "DIRECT=OS:host\\SYSTEM$;JOURNAL",
        "DIRECT=OS:host\\SYSTEM$;DEADLETTER",
        "DIRECT=OS:host\\SYSTEM$;DEADXACT",
        f"MACHINE={TEXT};DEADLETTER",
    ],
)
@pytest.mark.spec("MQ-2.1.7-03")
def test_a_read_only_queue_is_no_element(read_only: str) -> None:
    assert is_read_only(parse_format_name(read_only))
    for text in (f"{read_only},PUBLIC={TEXT}", f"DIRECT=OS:host\\q,{read_only}"):
        assert not is_format_name(text)
    with pytest.raises(FormatNameError) as refused:
        parse_multiple_element_name(read_only)
    assert refused.value.code == 0xC00E001E
    # Nor is a name of several elements printed with one.
    (element,) = [parse_format_name(read_only)]
    assert not isinstance(element, MultipleElementName)
    several = MultipleElementName((PublicName(GUID), element))
    assert is_read_only(several)
    with pytest.raises(FormatNameError) as refused:
        format_name_text(several)
    assert refused.value.code == 0xC00E001E
    assert not any(map(is_read_only, ELEMENTS.values()))
    assert not is_read_only(parse_format_name("DIRECT=OS:host\\q;retry"))
