"""Adding a command is one declaration and one handler; what is missing is named here."""

from typing import get_type_hints

import msgspec
import pytest

from qm.model.machine import Machine, handlers_of
from qm.model.state.tables import MemoryState
from qm.model.values.columns import IntArray
from qm.model.values.commands import DECLARATIONS, ClockTick, Command, Declaration, Fixed
from qm.model.values.effects import Outcome
from qm.model.values.limits import APPLY_VERSION

KINDS = Command.__subclasses__()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_command_is_declared(kind: type[Command]) -> None:
    declaration = DECLARATIONS.get(kind)
    assert declaration is not None, f"{kind.__name__} is not `declared`"
    assert 1 <= declaration.since <= APPLY_VERSION
    fields = {field.name for field in msgspec.structs.fields(kind)}
    weight = declaration.weight
    if isinstance(weight, Fixed):
        assert weight.positions >= 1
    else:
        named = {value for value in msgspec.structs.astuple(weight) if isinstance(value, str)}
        assert named
        assert named <= fields


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_column_says_its_type_code(kind: type[Command]) -> None:
    hints = get_type_hints(kind, include_extras=True)
    assert [name for name, hint in hints.items() if hint is IntArray] == []


@pytest.mark.parametrize("declaration", DECLARATIONS.values(), ids=lambda one: one.op)
def test_each_command_has_a_handler(declaration: Declaration) -> None:
    machine = Machine(MemoryState())  # which raises LookupError, with the name
    assert machine._handlers[declaration.kind].__name__ == f"apply_{declaration.op}"


class Handles:
    """A part of a machine that handles one kind."""

    def apply_clock_tick(self, command: ClockTick) -> Outcome:
        return Outcome(0, value=command.count)


def test_a_command_has_exactly_one_handler() -> None:
    declared: dict[type[Command], Declaration] = {ClockTick: DECLARATIONS[ClockTick]}
    assert handlers_of([Handles()], declared)[ClockTick](ClockTick(3)).value == 3
    for parts, count in (([], 0), ([Handles(), Handles()], 2)):
        with pytest.raises(LookupError, match=f"ClockTick: {count} parts .* apply_clock_tick"):
            handlers_of(parts, declared)


def test_what_is_administered_weighs_as_much_as_one_message() -> None:
    """An entry has room for as many such commands as for messages."""
    fixed = {
        one.op: one.weight.positions
        for one in DECLARATIONS.values()
        if isinstance(one.weight, Fixed)
    }
    assert {op for op, weight in fixed.items() if weight != 1} == {"move", "order_acked"}
