"""Security contexts of a connection: by auth_context_id, each with keys of its own.

A last leg that failed in auth3, which is never answered, is remembered: the first request under it
gets the fault (RP-A9, RP-A10).
"""

from typing import Final

from qm.rpc.association.shared import Share
from qm.rpc.limits import SECURITY_CONTEXTS_FEW
from qm.rpc.pdu.codes import AuthLevel, FaultStatus
from qm.rpc.pdu.header import Pdu, Trailer
from qm.rpc.security.provider import (
    ANONYMOUS,
    Buffers,
    Identity,
    Provider,
    Providers,
    SecurityRefused,
)


class SecurityContext:
    """One security context."""

    __slots__ = ("auth_type", "has_failed", "level", "number", "provider")

    def __init__(self, number: int, auth_type: int, level: AuthLevel, provider: Provider) -> None:
        self.number = number
        self.auth_type = auth_type
        self.level = level
        self.provider = provider
        self.has_failed = False

    @property
    def is_ready(self) -> bool:
        """Whether calls may be made under it."""
        return self.provider.is_done and not self.has_failed


class UnknownAuthType(Exception):
    """No provider of this type is offered."""


class LegRefused(SecurityRefused):
    """A leg in bind or alter_context is refused."""

    def __init__(self, text: str, status: FaultStatus = FaultStatus.ACCESS_DENIED) -> None:
        """`status`: of the fault that answers it, in alter_context."""
        super().__init__(text)
        self.status = status


class NoExchange(Exception):
    """A last leg came where nothing waits for one."""


class SecurityContexts:
    """All security contexts of one connection."""

    def __init__(self, providers: Providers, address: str, share: Share) -> None:
        """`share`: where those beyond a few come from."""
        self._providers = providers
        self._address = address
        self._share = share
        self._by_number: dict[int, SecurityContext] = {}
        self.signs_header = False
        """Whether PFC_SUPPORT_HEADER_SIGN was negotiated."""

    def leg(self, trailer: Trailer) -> bytes:
        """Take a leg of an exchange from bind or alter_context; return our token.

        Raises UnknownAuthType, LegRefused.
        """
        context = self._by_number.get(trailer.context_id)
        if context is None:
            context = self._begin(trailer)
        elif context.provider.is_done or context.has_failed:
            raise LegRefused("a leg of an exchange that is over")
        elif context.auth_type != trailer.auth_type:
            raise LegRefused("a leg changes its provider", FaultStatus.SECURITY_PACKAGE)
        elif context.level != _level(trailer):
            raise LegRefused("a leg changes the level of its security context")
        try:
            return context.provider.step(trailer.token)
        except SecurityRefused as error:
            context.has_failed = True
            raise LegRefused(str(error), FaultStatus.SECURITY_PACKAGE) from error

    def last_leg(self, trailer: Trailer) -> None:
        """Take the last leg of an exchange from auth3, which is not answered.

        Raises NoExchange, SecurityRefused.
        """
        context = self._by_number.get(trailer.context_id)
        if context is None or context.provider.is_done:
            raise NoExchange("auth3 without an exchange that waits for it")
        agrees = (context.auth_type, context.level) == (trailer.auth_type, _level(trailer))
        if not agrees or not context.provider.ends_by_auth3:
            context.has_failed = True
            raise SecurityRefused("auth3 does not belong to this exchange (RP-A9)")
        try:
            context.provider.step(trailer.token)
        except SecurityRefused:
            context.has_failed = True
            raise

    def of(self, trailer: Trailer | None) -> SecurityContext | None:
        """Return the context of a request, None for an unprotected one. Raises SecurityRefused."""
        if trailer is None:
            return None
        context = self._by_number.get(trailer.context_id)
        if context is None:
            raise SecurityRefused(f"there is no security context {trailer.context_id}")
        if (context.auth_type, context.level) != (trailer.auth_type, _level(trailer)):
            raise SecurityRefused("type or level of a request differ from its security context")
        return context

    def unprotect(self, pdu: Pdu, head_size: int, context: SecurityContext) -> bytes:
        """Return the stub of a request fragment, in clear, without padding.

        `head_size`: bytes of the body before its stub. Raises SecurityRefused.
        """
        trailer = pdu.trailer
        assert trailer is not None
        head, body = pdu.body[:head_size], pdu.body[head_size:]
        if trailer.pad_length > len(body):
            raise SecurityRefused("more padding than stub")
        if context.level >= AuthLevel.PACKET:
            buffers = Buffers(pdu.header + head, body, trailer.raw)
            body = context.provider.unprotect(
                context.level, buffers, trailer.token, signs_header=self.signs_header
            )
        return body[: len(body) - trailer.pad_length]

    def identity(self, context: SecurityContext | None) -> Identity:
        """Return who calls under a context."""
        return ANONYMOUS if context is None else context.provider.identity

    def _begin(self, trailer: Trailer) -> SecurityContext:
        # The level comes first, as with Windows by Samba's tests: with none, an unknown auth_type
        # is no reason of its own, though [MS-RPCE] 3.3.3.5.3 makes no such difference.
        level = _level(trailer)
        if level <= AuthLevel.NONE:
            raise LegRefused("a security context without any level of protection")
        provider = self._providers.begin(trailer.auth_type, level, self._address)
        if provider is None:
            raise UnknownAuthType(f"auth_type {trailer.auth_type} is not offered")
        self._admit()
        context = SecurityContext(trailer.context_id, trailer.auth_type, level, provider)
        self._by_number[trailer.context_id] = context
        return context

    def _admit(self) -> None:
        """Refuse one more security context if there are too many."""
        held = len(self._by_number)
        is_ready = held < SECURITY_CONTEXTS_FEW or all(
            one.is_ready for one in self._by_number.values()
        )
        if not is_ready or not self._share.take(held):
            raise LegRefused(
                f"{held} security contexts: too many, or not all are complete",
                FaultStatus.PROTOCOL_ERROR,
            )

    def close(self) -> None:
        """Note that the connection is gone."""
        held, self._by_number = len(self._by_number), {}
        self._share.give_back(held)


_LEVELS: Final = frozenset(AuthLevel)


def _level(trailer: Trailer) -> AuthLevel:
    """Return the level of a trailer; CALL counts as PACKET [MS-RPCE 2.2.1.1.8].

    Raises LegRefused.
    """
    if trailer.level not in _LEVELS:
        raise LegRefused(f"level {trailer.level} is not defined")
    level = AuthLevel(trailer.level)
    return AuthLevel.PACKET if level is AuthLevel.CALL else level
