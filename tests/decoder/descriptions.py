"""What the product's description of a packet says, against the second decoder."""

from __future__ import annotations

from qm.wire.packets.describe import Description, Node
from tests.decoder.decode import decode
from tests.decoder.spoken import Flat, flat


def described(description: Description) -> Flat:
    """A description in the decoder's names; padding and bytes without a field are left out."""
    found: Flat = {}
    for node in description.nodes:
        collect(node, node.name, found)
    return found


def collect(node: Node, name: str, found: Flat) -> None:
    if node.value is not None:
        found[name] = node.value.hex() if isinstance(node.value, bytes) else node.value
    formats = 0
    for child in node.children:
        if child.name == "padding":
            continue
        if child.name == "FormatName":
            collect(child, f"{name}.FormatNameList.{formats}", found)
            formats += 1
        elif node.name == "MessageBody":
            collect(child, f"{node.text}.{child.name}", found)
        else:
            collect(child, f"{name}.{child.name}", found)


def check_description(raw: bytes, description: Description) -> None:
    assert description.error is None
    # An item without bytes is no node, and a text decoded to nothing is none either.
    decoded = {name: value for name, value in flat(decode(raw)).items() if value != ""}
    wanted = {name: value for name, value in described(description).items() if value != ""}
    assert wanted == decoded
    covered = 0
    for node in description.nodes:
        assert node.offset == covered
        covered += node.size
    assert covered == len(raw)
