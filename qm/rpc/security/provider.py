"""What the engine asks of a security provider, one per security context."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from qm.rpc.pdu.codes import AuthLevel
from qm.security.sid import Sid, sid_from_text

EVERYONE = sid_from_text("S-1-1-0")
ANONYMOUS_LOGON = sid_from_text("S-1-5-7")
AUTHENTICATED_USERS = sid_from_text("S-1-5-11")
NETWORK = sid_from_text("S-1-5-2")


class Identity(msgspec.Struct, frozen=True):
    """Who made a call."""

    name: str
    """Of the account, as it was authenticated; "anonymous" for nobody."""
    sids: tuple[Sid, ...]
    """The user's first, then groups; Everyone is implied by access checks."""
    is_authenticated: bool = True


ANONYMOUS = Identity("anonymous", (ANONYMOUS_LOGON,), is_authenticated=False)


class SecurityRefused(Exception):
    """A token or signature is refused. The text is for this node's log; it holds no secret."""


class Buffers(msgspec.Struct, frozen=True):
    """The parts of a protected PDU, in the order in which they are signed."""

    header: bytes
    """PDU header with the head of the request or response."""
    body: bytes
    """Stub, verification trailer and padding: what is sealed."""
    trailer: bytes
    """The eight bytes of sec_trailer."""


class Provider(Protocol):
    """One security context's exchange and its keys."""

    @property
    def is_done(self) -> bool:
        """Whether the exchange is complete, so that calls may be made."""

    @property
    def identity(self) -> Identity:
        """Who the peer is; only once it is done."""

    @property
    def ends_by_auth3(self) -> bool:
        """Whether the last leg may come in auth3, which has no answer."""
        return True

    def step(self, token: bytes) -> bytes:
        """Take the peer's next token, return ours, which may be empty. Raises SecurityRefused."""

    def signature_size(self, level: AuthLevel) -> int:
        """Return the bytes of a token on calls of this level."""

    def protect(self, level: AuthLevel, buffers: Buffers, *, signs_header: bool) -> Sequence[bytes]:
        """Return (body, token) to send. Raises SecurityRefused."""

    def unprotect(
        self, level: AuthLevel, buffers: Buffers, token: bytes, *, signs_header: bool
    ) -> bytes:
        """Return the plain body of what was received. Raises SecurityRefused."""


class Mechanism(Provider, Protocol):
    """A provider that SPNEGO can hold."""

    @property
    def had_mic(self) -> bool:
        """Whether the peer's last token was protected by a MIC, so that its list must be, too."""

    def sign_list(self, mechanisms: bytes) -> bytes:
        """Return our mechListMIC over the DER of the list of mechanisms."""

    def verify_list(self, mechanisms: bytes, mic: bytes) -> None:
        """Check the peer's. Raises SecurityRefused."""

    def restart(self) -> None:
        """Begin anew what begins anew behind the MICs (RP-A7)."""


class Providers(Protocol):
    """Creates providers for clients that bind."""

    def begin(self, auth_type: int, level: AuthLevel, address: str) -> Provider | None:
        """Return a provider of a type; None for one that is not offered."""
