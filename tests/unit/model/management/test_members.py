"""Where nodes are reached, as replicated rows."""

from qm.model.queries import View, member_addresses
from qm.model.values.commands import SetMember
from qm.model.values.limits import MEMBERS_MAX
from qm.model.values.records import MemberAddress
from qm.wire.codes import ErrorCode
from tests.unit.model.world import World


def test_addresses_are_kept_changed_and_forgotten() -> None:
    world = World()
    world.apply(SetMember("n2", "b.example", 1, 2, 3), SetMember("n1", "a.example", 4, 5, 6))
    world.apply(SetMember("n2", "c.example", 7, 8, 9))
    view = View.of(world.state)
    assert member_addresses(view) == {
        "n1": MemberAddress("a.example", 4, 5, 6),
        "n2": MemberAddress("c.example", 7, 8, 9),
    }
    world.apply(SetMember("n1", "", 0, 0, 0), SetMember("n3", "", 0, 0, 0))
    assert list(member_addresses(View.of(world.state))) == ["n2"]


def test_names_and_their_number_are_bounded() -> None:
    world = World()
    for name in ("", "n" * 256):
        (outcome,) = world.apply(SetMember(name, "a", 1, 2, 3)).outcomes
        assert outcome.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    for number in range(MEMBERS_MAX + 1):
        (outcome,) = world.apply(SetMember(f"n{number}", "a", 1, 2, 3)).outcomes
    assert outcome.status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    (outcome,) = world.apply(SetMember("n0", "b", 1, 2, 3)).outcomes
    assert outcome.status == 0
