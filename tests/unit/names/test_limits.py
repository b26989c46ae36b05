"""Long and hostile texts are refused by their length, before anything is built from them."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from qm.names import (
    MultipleElementName,
    QueueNameError,
    parse_direct_format_name,
    parse_format_name,
    parse_multiple_element_name,
    parse_path_name,
)
from qm.names.format_name import (
    ELEMENTS_MAX,
    FORMAT_NAME_MAX_CHARS,
    MULTIPLE_ELEMENT_NAME_MAX_CHARS,
)
from qm.names.grammar import is_host
from qm.names.path_name import PATH_NAME_MAX_CHARS

PUBLIC = "PUBLIC=6B29FC40-CA47-1067-B31D-00DD010662DA"


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_format_name, "DIRECT=OS:" + "a" * 5_000_000),
        (parse_format_name, "DIRECT=HTTP://web1:" + "0" * 1_000_000 + "/MSMQ\\q"),
        (parse_format_name, "A" * 5_000_000 + "=x"),
        (parse_format_name, "," * MULTIPLE_ELEMENT_NAME_MAX_CHARS),
        (parse_format_name, (PUBLIC + ",") * 100_000),
        (parse_direct_format_name, "TCP:" + "1." * 1_000_000),
        (parse_multiple_element_name, "," * (MULTIPLE_ELEMENT_NAME_MAX_CHARS + 1)),
        (parse_path_name, "\\" * 1_000_000),
        (parse_path_name, "a" * 1_000_000 + "\\q"),
    ],
)
def test_a_text_over_its_limit_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(QueueNameError) as error:
        parse(text)
    assert "allowed" in error.value.reason


def test_the_longest_legal_names_are_read() -> None:
    queue, subqueue, computer = "q" * 124, "s" * 32, "c" * 256
    text = f"DIRECT=HTTPS://{computer}:65535/MSMQ\\PRIVATE$\\{queue};{subqueue}"
    assert len(text) <= FORMAT_NAME_MAX_CHARS
    parse_format_name(text)
    path = f"{computer}\\private$\\{queue};{subqueue}"
    assert len(path) == PATH_NAME_MAX_CHARS
    parse_path_name(path)


def test_as_many_elements_as_fit_are_read() -> None:
    shortest = "DIRECT=OS:a\\q"
    name = parse_format_name(",".join([shortest] * ELEMENTS_MAX))
    assert isinstance(name, MultipleElementName)
    assert len(name.elements) == ELEMENTS_MAX
    with pytest.raises(QueueNameError, match="elements"):
        parse_format_name(",".join([shortest] * (ELEMENTS_MAX + 1)))


def calls_to_read(elements: int) -> int:
    """Count the function calls of one parse: a measure of work that no clock disturbs."""
    text = ",".join([f"DIRECT=HTTP://web1:8080/MSMQ\\{'q' * 124};{'s' * 32}"] * elements)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        parse_format_name(text)
    finally:
        sys.setprofile(None)
    return calls


def test_work_grows_with_the_number_of_elements_and_not_faster() -> None:
    few, many = calls_to_read(100), calls_to_read(400)
    assert many < 4.2 * few


@pytest.mark.parametrize(
    "text", ["10.0.0.3", "::1", "fe80::1:2", "host", "a.b-c.example", "UNDER_SCORE", "x.example."]
)
def test_addresses_and_host_names_are_hosts(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.300", "1.2.3", "17", "-a.example", "a..b", "a b", "a/b", "fe80::1%eth0", "x" * 64,
     "a." * 127 + "b"],
)  # fmt: skip
def test_misspelt_addresses_are_not_hosts(text: str) -> None:
    assert not is_host(text)
