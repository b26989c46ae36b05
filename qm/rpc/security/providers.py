"""Which security providers a node offers to clients that bind."""

from collections.abc import Callable
from functools import partial

from typing_extensions import override

from qm.edge.tcp.admission import place_of
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.security.accounts import Logons
from qm.rpc.security.kerberos import AcceptorMaker
from qm.rpc.security.ntlm import NtlmAcceptor, NtlmTarget
from qm.rpc.security.provider import Mechanism, Provider, Providers
from qm.rpc.security.spnego import OID_KERBEROS, OID_KERBEROS_MS, OID_NTLM, SpnegoAcceptor


class OfferedProviders(Providers):
    """NTLM and, with a keytab, Kerberos; by themselves and in SPNEGO."""

    def __init__(
        self,
        target: Callable[[], NtlmTarget],
        logons: Logons,
        random_bytes: Callable[[int], bytes],
        filetime: Callable[[], int],
        kerberos: AcceptorMaker | None = None,
    ) -> None:
        """`target`: asked at each exchange. `filetime`: UTC in 100 ns since 1601.

        `kerberos`: makes what takes tickets; None where there is no keytab.
        """
        self._target = target
        self._logons = logons
        self._random_bytes = random_bytes
        self._filetime = filetime
        self._kerberos = kerberos

    @override
    def begin(self, auth_type: int, level: AuthLevel, address: str) -> Provider | None:
        place = place_of(address)

        def ntlm() -> NtlmAcceptor:
            return NtlmAcceptor(
                level, place, self._target(), self._logons, self._random_bytes, self._filetime
            )

        if auth_type == AuthType.NTLM:
            return ntlm()
        mechanisms: dict[bytes, Callable[[], Mechanism]] = {OID_NTLM: ntlm}
        if self._kerberos is not None:
            kerberos = partial(self._kerberos, level)
            if auth_type == AuthType.KERBEROS:
                return kerberos()
            mechanisms |= {OID_KERBEROS: kerberos, OID_KERBEROS_MS: kerberos}
        return SpnegoAcceptor(mechanisms) if auth_type == AuthType.SPNEGO else None
