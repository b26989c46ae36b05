"""Caches keep what their sizes and lifetimes say ([MS-MQQB] 3.1.6.10, 3.1.6.13)."""

from qm.edge.security.aged_cache import AgedCache
from qm.edge.security.allowances import Allowances


def test_the_oldest_half_goes_when_there_is_no_room() -> None:
    cache = AgedCache[int, str](5, 100.0)
    for number in range(5):
        cache.put(number, str(number), float(number))
    cache.put(0, "again", 5.0)
    cache.put(6, "6", 6.0)
    assert [number for number in range(7) if cache.get(number)] == [0, 3, 4, 6]


def test_the_timer_ends_what_is_too_old_and_starts_again_for_the_rest() -> None:
    cache = AgedCache[int, str](5, 100.0)
    assert cache.first_cleanup_at(7.0) == 107.0
    cache.put(1, "1", 7.0)
    cache.put(2, "2", 50.0)
    assert cache.clean(107.0) == 7.0 + 100.0 + 60.0
    assert cache.clean(108.0) == 50.0 + 100.0 + 60.0
    assert cache.get(1) is None
    assert cache.get(2) == "2"
    assert cache.clean(210.0) is None
    assert len(cache) == 0


def test_an_address_spends_its_allowance_and_earns_it_back() -> None:
    allowances = Allowances()
    assert allowances.wait_s("10.0.0.7", 1.0) == 0
    for _ in range(200):
        assert allowances.wait_s("10.0.0.7", 1.0) == 0
        allowances.spend("10.0.0.7", 1.0)
    wait_s = allowances.wait_s("10.0.0.7", 1.0)
    assert 0 < wait_s <= 1 / 50
    assert allowances.wait_s("10.0.0.8", 1.0) == 0
    assert allowances.wait_s("10.0.0.7", 1.0 + wait_s + 1e-9) == 0
    assert allowances.wait_s("10.0.0.7", 1e6) == 0


def test_addresses_that_spent_are_forgotten_in_their_order() -> None:
    allowances = Allowances()
    for number in range(5_000):
        allowances.spend(f"address {number}", 1.0)
    assert len(allowances._spent) == 4_096
