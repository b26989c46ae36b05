"""The second decoder against every packet vector, and the proof that it is a second one."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.decoder.decode import BadBytesError, decode

ROOT = Path(__file__).resolve().parents[2]
VECTORS = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((ROOT / "tests" / "data" / "vectors").glob("*.json"))
}
PACKETS = [
    name for name, vector in VECTORS.items() if vector["transport"] in ("udp/3527", "tcp/1801")
]
COMPLETE = [name for name in PACKETS if VECTORS[name]["complete"]]

# Remarks of the vectors about a header, not fields of it.
REMARKS = {"PaddingLength", "PaddingAll0x5A", "acked_recoverable", "uint64"}


def expected(fields: dict[str, Any]) -> dict[str, Any]:
    """A vector's fields as the decoder writes them: GUIDs as their 16 bytes."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if name.startswith("_") or name.endswith("_bytes") or name in REMARKS:
            continue
        if isinstance(value, dict):
            found[name] = expected(value)
        elif isinstance(value, str) and len(value) == 36 and value.count("-") == 4:
            found[name] = UUID(value).bytes_le.hex()
        else:
            found[name] = value
    return found


def included(wanted: dict[str, Any], decoded: dict[str, Any]) -> dict[str, Any]:
    """The part of `decoded` that the vector speaks of."""
    return {
        name: included(value, decoded[name]) if isinstance(value, dict) else decoded[name]
        for name, value in wanted.items()
        if name in decoded
    }


@pytest.mark.parametrize("name", COMPLETE)
def test_every_vector_decodes_to_its_fields(name: str) -> None:
    vector = VECTORS[name]
    decoded = decode(bytes.fromhex(vector["hex"]))
    wanted = expected(vector["fields"])
    if "Ping" in decoded:
        wanted = {"Ping": wanted}
    body = wanted.pop("Body", None)
    assert included(wanted, decoded) == wanted
    if body is not None:
        assert decoded["MessagePropertiesHeader"]["MessageBody"] == body


@pytest.mark.parametrize("name", COMPLETE)
def test_no_vector_decodes_when_cut_short(name: str) -> None:
    data = bytes.fromhex(VECTORS[name]["hex"])
    for length in range(len(data)):
        with pytest.raises(BadBytesError):
            decode(data[:length])


def test_the_truncated_frame_is_refused() -> None:
    incomplete = [name for name in PACKETS if name not in COMPLETE]
    assert incomplete == ["mqqb_frame7_user_message_as_printed_truncated"]
    with pytest.raises(BadBytesError, match="cut short"):
        decode(bytes.fromhex(VECTORS[incomplete[0]]["hex"]))


def test_it_shares_nothing_with_the_product() -> None:
    source = (Path(__file__).parent / "decode.py").read_text(encoding="utf-8")
    imported = {
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported == {"__future__", "typing"}
    script = (
        "import sys; import tests.decoder.decode;"
        "print([m for m in sys.modules if m.split('.')[0] in ('qm', 'raft', 'spark')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
