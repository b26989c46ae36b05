"""Writes users files as earlier releases did, for tests."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from qm.rpc.users_file import User


def write_users(path: Path, users: Sequence[User]) -> None:
    """Write a file that its owner alone can read."""
    path.touch(0o600)
    path.write_text("\n".join(map(_table, users)))


def _table(user: User) -> str:
    """Return a user as TOML; its strings are those of JSON."""
    fields = msgspec.to_builtins(user)
    lines = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in fields.items()]
    return "\n".join(("[[user]]", *lines, ""))
