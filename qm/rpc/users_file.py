"""The users file: accounts for NTLM at one node, beside those of the cluster.

    [[user]]
    name = "alice"
    nt_hash = "..."            MD4 of the password; as good as the password
    sid = "S-1-5-21-..."       left out: derived from the name, as for certificates
    groups = ["S-1-5-32-544"]
    enabled = true

It is read again when it changes, so that accounts are valid at once. A file that others than its
owner can read is refused.
"""

import logging
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from typing_extensions import override

from qm.api.gate.identity import principal_sid
from qm.rpc.security.accounts import Account, AccountSource
from qm.rpc.security.ntlm_keys import KEY_SIZE_BYTES
from qm.security.sid import sid_from_text, sid_text

logger: Final = logging.getLogger(__name__)

USERS_FILE_MAX_BYTES: Final = 4 << 20
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class UsersFileUnusable(Exception):
    """The file cannot be used; says why and what to do."""


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One `[[user]]`."""

    name: str
    nt_hash: str
    sid: str = ""
    groups: tuple[str, ...] = ()
    domain: str = ""
    enabled: bool = True

    def account(self) -> Account:
        """Return the account. Raises ValueError."""
        raw = bytes.fromhex(self.nt_hash)
        if len(raw) != KEY_SIZE_BYTES:
            raise ValueError(f"nt_hash of {self.name!r} has {len(raw)} bytes, not {KEY_SIZE_BYTES}")
        sid = sid_from_text(self.sid) if self.sid else principal_sid(self.name)
        sids = (sid, *map(sid_from_text, self.groups))
        return Account(self.name, raw, sids, self.domain, self.enabled)


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: tuple[User, ...] = ()


def read_users(path: Path) -> Sequence[User]:
    """Return the users of a file. Raises UsersFileUnusable."""
    try:
        status = path.stat()
        if status.st_mode & _FOR_OTHERS:
            raise UsersFileUnusable(f"{path} can be read by others: run `chmod 600 {path}`")
        if status.st_size > USERS_FILE_MAX_BYTES:
            raise UsersFileUnusable(f"{path} is longer than {USERS_FILE_MAX_BYTES} bytes")
        users = msgspec.toml.decode(path.read_bytes(), type=_Content).user
        for user in users:
            user.account()
    except OSError as error:
        raise UsersFileUnusable(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UsersFileUnusable(f"{path}: {error}") from error
    return users


class UsersFile(AccountSource):
    """The accounts of a file, as it is at each logon."""

    def __init__(self, path: Path | None) -> None:
        """`path`: None for no accounts at all."""
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._by_name: dict[str, Account] = {}
        self.problem = ""
        """Why the file cannot be used now, or empty."""

    @override
    def find(self, name: str, domain: str) -> Account | None:
        self._read()
        found = self._by_name.get(name.casefold())
        if found is None or (found.domain and found.domain.casefold() != domain.casefold()):
            return None
        return found

    def _read(self) -> None:
        if self._path is None:
            return
        try:
            status = self._path.stat()
        except OSError:
            status = None
        # A change of its mode alone is told by st_ctime.
        seen: tuple[int, ...] = ()
        if status is not None:
            seen = status.st_mtime_ns, status.st_ctime_ns, status.st_ino
        if seen and seen == self._seen:
            return
        self._seen = seen
        try:
            users = read_users(self._path)
        except UsersFileUnusable as error:
            if str(error) != self.problem:
                logger.error("no account is valid: %s", error)
            self.problem = str(error)
            self._by_name = {}
        else:
            self.problem = ""
            self._by_name = {one.name.casefold(): one.account() for one in users}


def described(user: User) -> str:
    """Return a line that shows a user without its hash."""
    sid = user.sid or sid_text(principal_sid(user.name))
    state = "" if user.enabled else " disabled"
    return f"{user.name} {sid} {' '.join(user.groups)}{state}".rstrip()
