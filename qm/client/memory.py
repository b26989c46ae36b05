"""What a client remembers across its own restart, in a small file that the application names.

The cluster keeps the numbers and their results; a client that returns with its id needs to know
only which queues it has open, since exclusive ones cannot be opened twice, and which sends were in
progress. Both are written before the call that they describe. Without a file the client forgets:
queues left open are closed when their session's lease ends.
"""

import base64
import os
from pathlib import Path

import msgspec

from qm.client.errors import ClientError


class MemoryDamaged(ClientError):
    """The file is not a client memory; the text gives its path."""


class Opened(msgspec.Struct, frozen=True):
    """A queue that a session has open, or is about to open."""

    queue: str
    access: int
    share_mode: int
    number: int
    """Number of its OpenQueue request."""
    handle: int = 0
    queue_id: int = 0
    is_transactional: bool = False
    """The fields after `number` are 0 until the response has arrived."""


class _Session(msgspec.Struct):
    opened: list[Opened] = []
    sends: dict[int, str] = {}
    transaction: str = ""


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    version: int = 1
    sessions: dict[str, _Session] = {}


class Memory:
    """Holds the client's memory, in a file if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file if it exists. Raises MemoryDamaged, OSError."""
        self._path = path
        self._content = _Content()
        if path is not None and path.exists():
            try:
                self._content = msgspec.json.decode(path.read_bytes(), type=_Content)
            except msgspec.MsgspecError as error:
                raise MemoryDamaged(f"{path} is no client memory: {error}") from None

    @property
    def is_kept(self) -> bool:
        """Whether the memory outlives this process."""
        return self._path is not None

    def opened(self, session: str) -> list[Opened]:
        """Return the queues that a session has open."""
        return list(self._session(session).opened)

    def set_opened(self, session: str, opened: list[Opened]) -> None:
        """Replace the queues that a session has open."""
        if opened != self._session(session).opened:
            self._session(session).opened = list(opened)
            self._write()

    def sends(self, session: str) -> dict[int, bytes]:
        """Return encoded SendRequests that were in progress, by their first number."""
        sends = self._session(session).sends
        return {number: base64.b64decode(sends[number]) for number in sorted(sends)}

    def begin_send(self, session: str, number: int, request: bytes) -> None:
        """Record a send that is about to be requested."""
        if self.is_kept:
            self._session(session).sends[number] = base64.b64encode(request).decode()
            self._write()

    def end_send(self, session: str, number: int) -> None:
        """Forget a send whose result is known."""
        if self._session(session).sends.pop(number, None) is not None:
            self._write()

    def transaction(self, session: str) -> bytes:
        """Return the last transaction that ran in a queue's session, b"" if none ever did."""
        return bytes.fromhex(self._session(session).transaction)

    def set_transaction(self, session: str, identifier: bytes) -> None:
        """Record a transaction that is about to begin in a queue's session."""
        if self.is_kept:
            self._session(session).transaction = identifier.hex()
            self._write()

    def forget(self, session: str) -> None:
        """Forget a session that was closed."""
        if self._content.sessions.pop(session, None) is not None:
            self._write()

    def _session(self, name: str) -> _Session:
        return self._content.sessions.setdefault(name, _Session())

    def _write(self) -> None:
        if self._path is None:
            return
        fresh = self._path.with_name(self._path.name + ".new")
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(self._content))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
