"""Every line of tests/data/names is read, or refused, as its file says."""

import pytest

from qm.names import (
    ConnectorName,
    DirectName,
    DirectSystemName,
    DistributionListName,
    FormatName,
    FormatNameError,
    MachineName,
    MulticastName,
    MultipleElementName,
    PathNameError,
    PrivateName,
    PublicName,
    format_name_key,
    format_name_text,
    parse_format_name,
    parse_multiple_element_name,
    parse_path_name,
    path_name_key,
    path_name_text,
)
from tests.unit.names.vectors import NameVector, read_vectors

VALID = read_vectors("valid.txt")
INVALID = read_vectors("invalid.txt")

TYPE_OF_KIND: dict[str, tuple[type, ...]] = {
    "direct": (DirectName, DirectSystemName),
    "public": (PublicName,),
    "private": (PrivateName,),
    "dl": (DistributionListName,),
    "machine": (MachineName,),
    "connector": (ConnectorName,),
    "multicast": (MulticastName,),
    "multi": (MultipleElementName,),
}


def parse_as(vector: NameVector) -> FormatName:
    if vector.kind == "multi":
        return parse_multiple_element_name(vector.name)
    return parse_format_name(vector.name)


def test_the_files_hold_what_the_guide_lists() -> None:
    assert (len(VALID), len(INVALID)) == (67, 73)


@pytest.mark.parametrize("vector", VALID, ids=lambda vector: vector.line)
def test_valid_name_is_read_and_printed(vector: NameVector) -> None:
    if vector.kind == "path":
        path = parse_path_name(vector.name)
        text = path_name_text(path)
        assert text.lower() == vector.name.lower()
        assert parse_path_name(text) == path
        assert path_name_key(parse_path_name(vector.name.upper())) == path_name_key(path)
        return
    name = parse_as(vector)
    assert isinstance(name, TYPE_OF_KIND[vector.kind])
    text = format_name_text(name)
    again = parse_as(vector._replace(name=text))
    assert again == name
    assert format_name_text(again) == text
    for spelling in (vector.name.upper(), vector.name.lower()):
        assert format_name_key(parse_as(vector._replace(name=spelling))) == format_name_key(name)


@pytest.mark.parametrize("vector", INVALID, ids=lambda vector: vector.line)
def test_invalid_name_is_refused_with_its_code(vector: NameVector) -> None:
    if vector.kind == "path":
        with pytest.raises(PathNameError) as path_error:
            parse_path_name(vector.name)
        assert path_error.value.code == 0xC00E0014
        return
    with pytest.raises(FormatNameError) as name_error:
        parse_as(vector)
    assert name_error.value.code == 0xC00E001E
    assert name_error.value.reason
