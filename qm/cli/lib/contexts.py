"""Named clusters of one user: a file of endpoints and of where the caller's PEM files lie."""

import os
import tempfile
from pathlib import Path
from typing import Final

import click
import msgspec

CONTEXTS_MAX: Final = 256
CONTEXTS_MAX_BYTES: Final = 1 << 20


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to reach one cluster. Paths are absolute, so that it works in any folder."""

    endpoints: tuple[str, ...]
    authority: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""


class Contexts(msgspec.Struct):
    """All contexts, and the name of the current one, "" for none."""

    contexts: dict[str, Context] = {}
    current: str = ""


def contexts_file() -> Path:
    """Return the file of this user's contexts."""
    given = os.environ.get("QM_CONTEXTS")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "quorate" / "contexts.json"


def read_contexts() -> Contexts:
    """Return what the file says. A file of no use is one line to the user, exit code 1."""
    file = contexts_file()
    try:
        if file.stat().st_size > CONTEXTS_MAX_BYTES:
            raise click.ClickException(f"{file} is too large for a file of contexts")
        return msgspec.json.decode(file.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file} is not a file of contexts: {error}") from error


def write_contexts(contexts: Contexts) -> None:
    """Replace the file as a whole; only its user can read it."""
    file = contexts_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".contexts-")
        with os.fdopen(descriptor, "wb") as writer:
            writer.write(msgspec.json.format(msgspec.json.encode(contexts), indent=1) + b"\n")
        Path(temporary).replace(file)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error}") from error


def find_context(contexts: Contexts, name: str) -> Context:
    """Return a context by name; for an unknown one, wrong usage that lists the known ones."""
    found = contexts.contexts.get(name)
    if found is None:
        known = ", ".join(sorted(contexts.contexts)) or "none yet: `qm context add`"
        raise click.UsageError(f"there is no context {name!r}; known are {known}")
    return found
