"""Generations of the queue manager's key pairs."""

import pytest

from qm.model.queries import View, manager_keys
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.limits import PUBLIC_KEY_LIST_MAX_BYTES
from qm.model.values.records import ManagerKeys
from qm.security.descriptor import ACE_ALLOWED, Ace, Acl, SecurityDescriptor, write_descriptor
from qm.security.sid import ADMINISTRATORS
from qm.wire.codes import ErrorCode
from tests.unit.model.world import NOW_MS, World, request

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def world() -> World:
    return World()


def set_keys(
    world: World,
    generation: int,
    sealed: bytes = b"ring",
    exchange_keys: bytes = b"exchange",
    signing_keys: bytes = b"signing",
) -> int:
    command = commands.SetManagerKeys(
        request(), sealed, exchange_keys, signing_keys, generation, DAY_MS, ()
    )
    return world.one(command).status


def known(world: World) -> ManagerKeys:
    return manager_keys(View.of(world.state))


def test_keys_of_the_birth_are_published_and_stay_the_first_generation(world: World) -> None:
    assert known(world) == ManagerKeys()
    assert set_keys(world, 1) == 0
    assert known(world) == ManagerKeys()
    manager = world.machine.manager
    assert manager is not None
    assert manager.sealed_private_keys == b"ring"
    assert manager.public_encryption_key_list == b"exchange"
    assert manager.public_signing_key_list == b"signing"
    before = manager.version
    assert set_keys(world, 1, b"again") == 0
    assert world.machine.manager is not None
    assert world.machine.manager.version == before + 1


def test_lists_of_keys_are_bounded(world: World) -> None:
    longest = bytes(PUBLIC_KEY_LIST_MAX_BYTES)
    assert set_keys(world, 1, exchange_keys=longest, signing_keys=longest) == 0
    for beyond in ({"exchange_keys": longest + b"x"}, {"signing_keys": longest + b"x"}):
        assert set_keys(world, 1, **beyond) == ErrorCode.MQ_ERROR_INVALID_PARAMETER


def test_replaced_keys_are_accepted_for_their_time_and_at_most_two(world: World) -> None:
    assert set_keys(world, 2) == 0
    assert known(world) == ManagerKeys(2, NOW_MS, ((1, NOW_MS + DAY_MS),))
    assert set_keys(world, 3) == 0
    assert set_keys(world, 4) == 0
    assert [number for number, _ in known(world).replaced] == [3, 2]
    world.now_ms += DAY_MS + 1
    assert set_keys(world, 5) == 0
    assert [number for number, _ in known(world).replaced] == [4]


@pytest.mark.parametrize("generation", [0, 3])
def test_another_generation_than_the_next_one_is_refused(world: World, generation: int) -> None:
    assert set_keys(world, generation) == ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT
    assert known(world) == ManagerKeys()


@pytest.mark.parametrize(
    ("sealed", "exchange", "signing"), [(65_537, 1, 1), (1, 16_385, 1), (1, 1, 16_385)]
)
def test_oversized_keys_are_refused(world: World, sealed: int, exchange: int, signing: int) -> None:
    status = set_keys(world, 2, bytes(sealed), bytes(exchange), bytes(signing))
    assert status == ErrorCode.MQ_ERROR_INVALID_PARAMETER


def test_only_who_may_change_permissions_may_replace_keys(world: World) -> None:
    acl = Acl((Ace(ACE_ALLOWED, 0, 0xF00F7, ADMINISTRATORS),))
    changes = {"security": encode_attribute(write_descriptor(SecurityDescriptor(dacl=acl)))}
    assert world.one(commands.SetQueueManager(request(), changes, ())).status == 0
    assert set_keys(world, 2) == ErrorCode.MQ_ERROR_ACCESS_DENIED
