"""The hash chain as a reader of the archive needs it; nodes keep it in `qm.store.chain`."""

from qm.store.chain import CHAIN_START, HASH_BYTES, chained

__all__ = ["CHAIN_START", "HASH_BYTES", "chained"]
