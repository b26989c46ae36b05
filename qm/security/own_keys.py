"""The queue manager's own private keys, as a node has them once they are unsealed."""

from collections.abc import Sequence
from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from qm.security.providers import Provider


class OwnKeys(Protocol):
    """Private keys by provider. All nodes have the same: there is one queue manager."""

    @property
    def version(self) -> int:
        """Differs whenever any answer may differ."""

    @property
    def is_sealed(self) -> bool:
        """Whether this node could not unseal the keys: another node can do what this one cannot."""

    def exchange_keys(self, provider: Provider) -> Sequence[RSAPrivateKey]:
        """Return the keys that open SIMPLEBLOBs, the newest first, older ones for as long as they
        are accepted. Empty: the provider has no key, or `is_sealed`.
        """

    def signing_key(self, provider: Provider) -> RSAPrivateKey | None:
        """Return the newest key for signatures."""


class _NoKeys:
    """No keys at all."""

    version: Final = 0
    is_sealed: Final = False

    def exchange_keys(self, provider: Provider) -> Sequence[RSAPrivateKey]:
        del provider
        return ()

    def signing_key(self, provider: Provider) -> RSAPrivateKey | None:
        del provider
        return None


NO_KEYS: Final[OwnKeys] = _NoKeys()
"""Of a queue manager that has none."""
