"""Bytes from the guide: `tests/data/vectors/rpc`."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "data" / "vectors" / "rpc"


def vector(name: str) -> bytes:
    """The bytes of a vector."""
    return bytes.fromhex(fields(name)["hex"])


def fields(name: str) -> dict[str, Any]:
    """All of a vector's file."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content
