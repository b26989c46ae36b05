"""Which security providers a node offers to clients that bind."""

from collections.abc import Callable

from typing_extensions import override

from qm.edge.tcp.admission import place_of
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.security.accounts import Logons
from qm.rpc.security.ntlm import NtlmAcceptor, NtlmTarget
from qm.rpc.security.provider import Provider, Providers
from qm.rpc.security.spnego import OID_NTLM, SpnegoAcceptor


class OfferedProviders(Providers):
    """NTLM, by itself and in SPNEGO."""

    def __init__(
        self,
        target: Callable[[], NtlmTarget],
        logons: Logons,
        random_bytes: Callable[[int], bytes],
        filetime: Callable[[], int],
    ) -> None:
        """`target`: asked at each exchange. `filetime`: UTC in 100 ns since 1601."""
        self._target = target
        self._logons = logons
        self._random_bytes = random_bytes
        self._filetime = filetime

    @override
    def begin(self, auth_type: int, level: AuthLevel, address: str) -> Provider | None:
        place = place_of(address)

        def ntlm() -> NtlmAcceptor:
            return NtlmAcceptor(
                level, place, self._target(), self._logons, self._random_bytes, self._filetime
            )

        if auth_type == AuthType.NTLM:
            return ntlm()
        if auth_type == AuthType.SPNEGO:
            return SpnegoAcceptor({OID_NTLM: ntlm})
        return None
