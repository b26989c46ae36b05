"""Other queue managers and users, as those who verify, decrypt, sign and encrypt look them up.

[MS-MQQB] 3.1.5.8.3 and 3.1.7.1.5 read both from the directory. The calls are made in the event
loop, between applied entries, and read replicated rows at most.
"""

from typing import Final, Protocol

import msgspec

from qm.security.sid import Sid
from qm.wire.guid import Guid
from qm.wire.structures.public_key import MqdsPublicKey


class DirectoryUser(msgspec.Struct, frozen=True, gc=False):
    """A user ([MS-MQDMPR] 3.1.1.15)."""

    sid: Sid
    certificates: tuple[bytes, ...] = ()
    """X.509, as registered."""
    name: str = ""


class DirectoryManager(msgspec.Struct, frozen=True, gc=False):
    """Another queue manager ([MS-MQDMPR] 3.1.1.1)."""

    identifier: Guid
    name: str = ""
    exchange_keys: tuple[MqdsPublicKey, ...] = ()
    """PublicEncryptionKeyList."""
    signing_keys: tuple[MqdsPublicKey, ...] = ()
    """PublicSigningKeyList."""


class Directory(Protocol):
    """What is known of others."""

    @property
    def version(self) -> int:
        """Differs whenever any answer may differ: what was derived from answers is then void."""

    def user(self, sid: Sid) -> DirectoryUser | None:
        """Return the user with a SID."""

    def users_with(self, digest: bytes) -> tuple[Sid, ...]:
        """Return who registered a certificate with this `certificate_digest`.

        The digest is MD5 and proves nothing: compare the certificates themselves.
        """

    def queue_manager(self, identifier: Guid) -> DirectoryManager | None:
        """Return the queue manager with a GUID."""

    def queue_manager_named(self, name: str) -> DirectoryManager | None:
        """Return the queue manager with a computer or DNS name, in any case."""


class _EmptyDirectory:
    """A directory without entries."""

    version: Final = 0

    def user(self, sid: Sid) -> DirectoryUser | None:
        del sid
        return None

    def users_with(self, digest: bytes) -> tuple[Sid, ...]:
        del digest
        return ()

    def queue_manager(self, identifier: Guid) -> DirectoryManager | None:
        del identifier
        return None

    def queue_manager_named(self, name: str) -> DirectoryManager | None:
        del name
        return None


EMPTY_DIRECTORY: Final[Directory] = _EmptyDirectory()
"""Of a queue manager that knows nobody."""
