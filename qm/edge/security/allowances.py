"""How often an address may cost more than its messages do: failed checks and new session keys."""

from typing import Final

from qm.edge.limits import FAILURE_ADDRESSES_MAX_COUNT, FAILURES_BURST_COUNT, FAILURES_PER_S


class Allowances:
    """A bucket of tokens for each address that spent some. Whoever spends nothing costs nothing."""

    def __init__(self) -> None:
        self._spent: Final[dict[str, tuple[float, float]]] = {}
        """Address -> tokens left, when that was."""

    def wait_s(self, address: str, now: float) -> float:
        """Return how long an address has to wait before it may spend again; 0: not at all."""
        left = self._left(address, now)
        return 0.0 if left >= 1 else (1 - left) / FAILURES_PER_S

    def spend(self, address: str, now: float) -> None:
        """Take a token; there may be fewer than none, for what was begun before."""
        left = self._left(address, now) - 1
        self._spent.pop(address, None)
        if len(self._spent) >= FAILURE_ADDRESSES_MAX_COUNT:
            del self._spent[next(iter(self._spent))]
        self._spent[address] = (left, now)

    def _left(self, address: str, now: float) -> float:
        found = self._spent.get(address)
        if found is None:
            return FAILURES_BURST_COUNT
        left, at = found
        return min(FAILURES_BURST_COUNT, left + (now - at) * FAILURES_PER_S)
