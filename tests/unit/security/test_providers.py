"""Providers are found under each name that the texts use, and an empty directory knows nobody."""

import pytest

from qm.security.directory import EMPTY_DIRECTORY
from qm.security.own_keys import NO_KEYS
from qm.security.providers import Provider, provider_named
from qm.security.sid import EVERYONE
from qm.wire.enums import PrivacyLevel, ProviderType


@pytest.mark.parametrize("provider", Provider)
def test_a_provider_is_found_by_its_name_and_its_level(provider: Provider) -> None:
    assert provider_named(provider.provider_name) is provider
    assert provider_named(provider.provider_name.upper()) is provider
    assert Provider(PrivacyLevel(provider)) is provider


def test_names_with_a_comma_are_the_same_providers() -> None:
    assert provider_named("Microsoft Base Cryptographic Provider, v1.0") is Provider.BASE
    assert provider_named("Microsoft Enhanced Cryptographic Provider, v1.0") is Provider.ENHANCED
    assert provider_named("A provider of our own") is None


def test_only_the_advanced_provider_is_of_the_aes_type() -> None:
    types = [provider.provider_type for provider in Provider]
    assert types == [ProviderType.RSA_FULL, ProviderType.RSA_FULL, ProviderType.RSA_AES]


def test_an_empty_directory_knows_nobody_and_no_keys_open_nothing() -> None:
    assert EMPTY_DIRECTORY.user(EVERYONE) is None
    assert EMPTY_DIRECTORY.users_with(bytes(16)) == ()
    assert EMPTY_DIRECTORY.queue_manager(bytes(16)) is None
    assert EMPTY_DIRECTORY.queue_manager_named("ada") is None
    assert not NO_KEYS.exchange_keys(Provider.ENHANCED)
    assert NO_KEYS.signing_key(Provider.ENHANCED) is None
