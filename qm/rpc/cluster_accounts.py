"""Accounts of the cluster: users of its directory who have a password, the same at every node."""

from collections.abc import Callable, Sequence

from typing_extensions import override

from qm.cluster.cluster import Cluster, Unavailable
from qm.model.queries import account
from qm.model.values.directory_objects import password_label
from qm.rpc.security.accounts import Account, AccountSource
from qm.rpc.security.ntlm_keys import KEY_SIZE_BYTES

Opened = Callable[[bytes, bytes], bytes | None]
"""(sealed, label) -> the secret; None while this node has no key that opens it."""


class ClusterAccounts(AccountSource):
    """The directory's accounts, as this node has applied them."""

    def __init__(self, cluster: Cluster, opened: Opened) -> None:
        self._cluster = cluster
        self._opened = opened

    @override
    def find(self, name: str, domain: str) -> Account | None:
        try:
            found = account(self._cluster.view, name)
        except Unavailable:
            return None
        if found is None or not found.sealed_password or not found.sid:
            return None
        if found.domain and found.domain.casefold() != domain.casefold():
            return None
        nt_hash = self._opened(found.sealed_password, password_label(found.sid))
        if nt_hash is None or len(nt_hash) != KEY_SIZE_BYTES:
            return None  # of the console alone: there is no hash that NTLM could use
        sids = (found.sid, *found.groups)
        return Account(found.name, nt_hash, sids, found.domain, not found.is_disabled)


class AccountsInTurn(AccountSource):
    """Several sources; the first that has an account says what it is."""

    def __init__(self, sources: Sequence[AccountSource]) -> None:
        self._sources = sources

    @override
    def find(self, name: str, domain: str) -> Account | None:
        found = (one.find(name, domain) for one in self._sources)
        return next((one for one in found if one is not None), None)
