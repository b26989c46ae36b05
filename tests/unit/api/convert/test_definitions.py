"""Definitions as YAML documents."""

import pytest

from qm.api.convert.definitions import Document, QueueDefinition, read_document, write_document
from qm.api.gate.errors import InvalidArgument


def test_a_document_reads_back_and_says_where_it_is_wrong() -> None:
    document = Document(1, queues=[QueueDefinition(r".\private$\a", {"quota": 7, "label": "x"})])
    assert read_document(write_document(document)) == document
    for text, reason in (
        ("version: 1\nqueue: []", "unknown field `queue`"),
        ("version: 1\nqueues: [{path_name: 7}]", r"queues\[0\].path_name"),
        (": :", "document"),
        ("version: 1\nqueues: [&a {path_name: a}, *a]", "aliases"),
        ("version: 1\nqueues: [{path_name: a}, {path_name: A}]", "twice"),
        ("[" * 1_000_000, "nested"),
        ("- " * 1_000_000, "nested"),
        ("{a: " * 1_000_000, "nested"),
        ("!!python/object/apply:os.system [ls]", "document"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            read_document(text)
