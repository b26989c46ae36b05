"""What is checked of commands before they are submitted."""

import msgspec
import pytest

from qm.cluster.cluster import Unavailable
from qm.model.values.commands import DECLARATIONS, ClockTick
from qm.node.relay.submission import check_since
from qm.store import codec
from qm.store.codec import encode_command, inspect


def test_a_command_that_the_cluster_does_not_know_yet_is_not_proposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newer = msgspec.structs.replace(DECLARATIONS[ClockTick], since=3)
    command_codec = codec._CommandCodec(newer)
    monkeypatch.setitem(codec._BY_OP, "clock_tick", command_codec)
    command = inspect(encode_command(ClockTick(1)))
    check_since([command], 3)
    with pytest.raises(Unavailable, match="clock_tick exists from apply version 3 on"):
        check_since([command], 2)
