"""The cryptographic providers of [MS-MQQB] 3.1.5.8.3, by which queue managers name their keys."""

from enum import IntEnum
from typing import Final

from qm.wire.enums import PrivacyLevel, ProviderType


class Provider(IntEnum):
    """A provider; its value is the PrivacyLevel of the bodies that it encrypts."""

    BASE = PrivacyLevel.BASE
    ENHANCED = PrivacyLevel.ENHANCED
    ADVANCED = PrivacyLevel.ADVANCED

    @property
    def provider_type(self) -> ProviderType:
        """MQDSPUBLICKEY.ulProviderType."""
        return ProviderType.RSA_AES if self is Provider.ADVANCED else ProviderType.RSA_FULL

    @property
    def provider_name(self) -> str:
        """Its name as Windows writes it."""
        return _NAMES[self]


_NAMES: Final = {
    Provider.BASE: "Microsoft Base Cryptographic Provider v1.0",
    Provider.ENHANCED: "Microsoft Enhanced Cryptographic Provider v1.0",
    Provider.ADVANCED: "Microsoft Enhanced RSA and AES Cryptographic Provider",
}


def _folded(name: str) -> str:
    return name.replace(",", "").casefold()


_BY_NAME: Final = {_folded(name): provider for provider, name in _NAMES.items()}


def provider_named(name: str) -> Provider | None:
    """Return the provider with a name; the texts write some names with a comma."""
    return _BY_NAME.get(_folded(name))
