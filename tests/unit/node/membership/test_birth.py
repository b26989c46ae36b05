"""A queue manager's birth, applied."""

import pytest

from qm.model.machine import Machine
from qm.model.state.tables import MemoryState
from qm.model.values.commands import CommandBatch, Stamp
from qm.node.membership.birth import fresh_key_pairs, protection, provision
from qm.wire.codes import ErrorCode


def test_a_second_birth_changes_no_access_list() -> None:
    machine = Machine(MemoryState())
    born = provision("QUORATE", "quorate", (), bytes(32))
    first = machine.apply(CommandBatch(1, Stamp(1_000, "n1"), (born, protection())))
    assert [outcome.status for outcome in first.outcomes] == [0, 0]
    manager = machine.manager
    assert manager is not None
    protected = manager.security
    assert protected
    again = machine.apply(CommandBatch(2, Stamp(2_000, "n1"), (born, protection())))
    assert again.outcomes[0].status == ErrorCode.MQ_ERROR_MACHINE_EXISTS
    assert again.outcomes[1].status != 0
    assert machine.manager is not None
    assert machine.manager.security == protected


@pytest.mark.spec("QB-3.1.3.2-11")
def test_every_birth_draws_an_identifier_of_its_own() -> None:
    pairs = fresh_key_pairs()
    drawn = {provision("QUORATE", "quorate", (), bytes(32), pairs).queue_manager for _ in range(50)}
    assert len(drawn) == 50
    assert {len(one) for one in drawn} == {16}
    keys = [provision("QUORATE", "quorate", (), bytes(32)).public_keys for _ in range(2)]
    assert keys[0] != keys[1]
