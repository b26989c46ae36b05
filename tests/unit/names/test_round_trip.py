"""parse(print(value)) is the value, print(parse(text)) is a normal form, and no text breaks out."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qm.names import (
    DirectAddress,
    DirectName,
    DirectProtocol,
    DirectSystemName,
    FormatNameError,
    MachineName,
    MulticastName,
    MultipleElementName,
    PathKind,
    PathName,
    PathNameError,
    PrivateName,
    PublicName,
    QueueNameError,
    SingleFormatName,
    SystemQueue,
    format_name_key,
    format_name_text,
    parse_direct_format_name,
    parse_format_name,
    parse_multiple_element_name,
    parse_path_name,
    path_name_key,
    path_name_text,
)
from tests.unit.names.strategies import (
    direct_names,
    direct_system_names,
    multiple_names,
    near_names,
    path_names,
    single_names,
)

Name = TypeVar("Name")

G = bytes(range(16))
OS = DirectAddress(DirectProtocol.OS, "srv1")


@given(single_names)
def test_a_format_name_reads_back(name: SingleFormatName) -> None:
    text = format_name_text(name)
    assert parse_format_name(text) == name
    assert format_name_key(parse_format_name(text.swapcase())) == format_name_key(name)


@given(multiple_names)
def test_a_multiple_element_name_reads_back(name: MultipleElementName) -> None:
    assert parse_multiple_element_name(format_name_text(name)) == name


@given(st.one_of(direct_names, direct_system_names))
def test_a_direct_name_is_read_with_and_without_its_prefix(
    name: DirectName | DirectSystemName,
) -> None:
    text = format_name_text(name)
    assert parse_direct_format_name(text) == name
    assert parse_direct_format_name(text.removeprefix("DIRECT=")) == name


@given(path_names)
def test_a_path_name_reads_back(name: PathName) -> None:
    text = path_name_text(name)
    assert parse_path_name(text) == name
    assert path_name_key(parse_path_name(text.swapcase())) == path_name_key(name)


@given(st.one_of(near_names, st.text()))
@example("DIRECT=DIRECT=OS:srv1\\q")
@example("DıRECT=OS:srv1\\q")
@example("DIRECT=Oſ:srv1\\q")
@example("PUBLIC=\ud800")
def test_any_text_ends_in_a_normal_form_or_in_the_named_error(text: str) -> None:
    for parse in (parse_format_name, parse_direct_format_name, parse_multiple_element_name):
        name = value_or_error(parse, text)
        if isinstance(name, QueueNameError):
            assert isinstance(name, FormatNameError)
            assert name.code == 0xC00E001E
            assert len(str(name)) < 500
        else:
            normal = format_name_text(name)
            assert format_name_text(parse_format_name(normal)) == normal
    path = value_or_error(parse_path_name, text)
    if isinstance(path, QueueNameError):
        assert isinstance(path, PathNameError)
        assert path.code == 0xC00E0014
    else:
        assert parse_path_name(path_name_text(path)) == path


def value_or_error(parse: Callable[[str], Name], text: str) -> Name | QueueNameError:
    try:
        return parse(text)
    except QueueNameError as error:
        return error


@pytest.mark.parametrize(
    "text", ["DIRECT=DIRECT=OS:srv1\\q", "DıRECT=OS:srv1\\q", "DIRECT=Oſ:s\\q"]
)
def test_a_prefix_is_read_once_and_in_ascii(text: str) -> None:
    with pytest.raises(FormatNameError):
        parse_format_name(text)


@pytest.mark.parametrize(
    "name",
    [
        PublicName(b"short"),
        PrivateName(G, -1),
        PrivateName(G, 0x1_0000_0000),
        MulticastName("10.0.0.1", 80),
        MulticastName("224.0.0.1", 65536),
        DirectName(OS, "q", subqueue="journal"),
        DirectName(OS, "q", subqueue="s", journal=True),
        DirectName(OS, "private$"),
        DirectName(OS, "a,PUBLIC=x"),
        DirectName(DirectAddress(DirectProtocol.TCP, "srv1"), "q"),
        DirectName(DirectAddress(DirectProtocol.OS, "srv1", port=80), "q"),
        DirectName(DirectAddress(DirectProtocol.OS, "srv1", separator="/"), "q"),
        DirectName(DirectAddress(DirectProtocol.HTTP, "web1", port=65536), "q"),
        DirectName(DirectAddress(DirectProtocol.HTTP, "web1:80"), "q"),
        MultipleElementName(()),
        MultipleElementName((PublicName(G, journal=True),)),
        MultipleElementName((MachineName(G, SystemQueue.JOURNAL),)),
    ],
)
def test_a_value_without_a_text_is_refused(
    name: SingleFormatName | MultipleElementName,
) -> None:
    with pytest.raises(FormatNameError):
        format_name_text(name)


@pytest.mark.parametrize(
    "name",
    [
        PathName("", "q"),
        PathName("srv1", "q;s"),
        PathName("srv1", "private$\\q"),
        PathName("srv1", "q", PathKind.SYSTEM, "sub"),
        PathName("srv1", "q", subqueue="deadxact"),
    ],
)
def test_a_path_without_a_text_is_refused(name: PathName) -> None:
    with pytest.raises(PathNameError):
        path_name_text(name)


def test_an_error_prints_its_reason_and_code() -> None:
    with pytest.raises(QueueNameError) as error:
        parse_format_name("PUBLIC=")
    assert str(error.value).endswith("(0xC00E001E)")
    assert error.value.reason in str(error.value)
