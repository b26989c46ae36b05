r"""Path names [MS-MQMQ 2.1.1]: `host\queue`, `host\private$\queue`, `host\system$;queue`.

A path name belongs to the computer that hosts the queue; `.` stands for the one that reads it.
"""

from enum import Enum
from typing import Final

import msgspec

from qm.names.errors import excerpt, illegal_path_name
from qm.names.grammar import (
    COMPUTER_NAME_MAX_CHARS,
    PRIVATE,
    QUEUE_NAME_MAX_CHARS,
    SUBQUEUE_NAME_MAX_CHARS,
    SYSTEM,
    NameVersion,
    SystemQueue,
    check_computer_name,
    check_queue_name,
    computer_key,
    split_queue,
    system_queue,
)

PATH_NAME_MAX_CHARS: Final = (
    COMPUTER_NAME_MAX_CHARS
    + len(f"\\{PRIVATE}\\")
    + QUEUE_NAME_MAX_CHARS
    + len(";")
    + SUBQUEUE_NAME_MAX_CHARS
)


class PathKind(Enum):
    """The three forms of a path name."""

    PUBLIC = "public"
    PRIVATE = "private"
    SYSTEM = "system"


class PathName(msgspec.Struct, frozen=True, gc=False):
    """A parsed path name; letters keep the case they came in."""

    computer: str
    """Computer name or IP address, 1 to 256 characters; `.` is the local computer."""
    queue: str
    """Queue name, 1 to 124 characters, without prefix and suffix."""
    kind: PathKind = PathKind.PUBLIC
    """Public, private or system queue."""
    subqueue: str | None = None
    """Subqueue name, 1 to 32 characters."""
    journal: bool = False
    """The queue's journal instead of the queue itself."""

    @property
    def system_queue(self) -> SystemQueue | None:
        """The queue of a system path name; None for other kinds and for unknown words."""
        return system_queue(self.queue) if self.kind is PathKind.SYSTEM else None


def parse_path_name(text: str, version: NameVersion = NameVersion.MSMQ_4_0) -> PathName:
    """Read a path name by the grammar of `version`; raise `PathNameError`."""
    if len(text) > PATH_NAME_MAX_CHARS:
        raise illegal_path_name(
            f"a path name of {len(text)} characters; {PATH_NAME_MAX_CHARS} are allowed"
        )
    computer, backslash, tail = text.partition("\\")
    if not backslash:
        raise illegal_path_name(f"{excerpt(text)} has no computer; write computer\\queue")
    check_computer_name(computer, illegal_path_name)
    folded = tail.lower()
    if folded.startswith(f"{SYSTEM};"):
        queue = tail[len(SYSTEM) + 1 :]
        check_queue_name(queue, illegal_path_name, version)
        return PathName(computer, queue, PathKind.SYSTEM)
    private = folded.startswith(f"{PRIVATE}\\")
    queue, subqueue, journal = split_queue(
        tail[len(PRIVATE) + 1 :] if private else tail,
        illegal_path_name,
        version=version,
        private=private,
    )
    kind = PathKind.PRIVATE if private else PathKind.PUBLIC
    return PathName(computer, queue, kind, subqueue, journal)


def path_name_text(name: PathName, version: NameVersion = NameVersion.MSMQ_4_0) -> str:
    """Print a path name; raise `PathNameError` for a value that no text of `version` gives."""
    text = f"{name.computer}\\{_tail(name)}"
    if parse_path_name(text, version) != name:
        raise illegal_path_name(f"{excerpt(text)} reads back as a different value")
    return text


def path_name_key(name: PathName) -> str:
    """Return the text by which two path names of one queue compare equal."""
    return f"{computer_key(name.computer)}\\{_tail(name).lower()}"


def _tail(name: PathName) -> str:
    if name.kind is PathKind.SYSTEM:
        prefix = f"{SYSTEM};"
    else:
        prefix = f"{PRIVATE}\\" if name.kind is PathKind.PRIVATE else ""
    suffix = ";JOURNAL" if name.journal else ""
    return prefix + name.queue + ("" if name.subqueue is None else f";{name.subqueue}") + suffix
