"""Attributes of stored messages for readers."""

from qm.api.convert.properties import properties_of
from tests.unit.model.world import packet


def test_texts_that_protobuf_cannot_carry_are_shown_all_the_same() -> None:
    """A label is any 16-bit units; half a surrogate pair must not make it unreadable."""
    raw = packet(1, properties={"label": "a\ud800z"})
    assert properties_of(raw, 1, 2, with_body=True).label == "a\ufffdz"
    whole = packet(1, properties={"label": "\U0001f600"})
    assert properties_of(whole, 1, 2, with_body=True).label == "\U0001f600"
