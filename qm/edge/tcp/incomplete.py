"""Packets that have not arrived completely, of all connections of an edge.

Reading no more would not help, since nothing is completed without reading. So where too much is
held, the session ends whose packet has been incomplete for longest: who sends parts and then
nothing gives way to those who send on.
"""

from qm.edge.batches import IntakeOwner
from qm.edge.limits import INCOMPLETE_MAX_BYTES
from qm.session import CloseReason


class Incomplete:
    """How much is held, and whose is the oldest."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._held: dict[IntakeOwner, int] = {}
        """Bytes by connection, those of the oldest packets first."""

    def hold(self, connection: IntakeOwner, size_bytes: int, *, is_new: bool) -> None:
        """Note what a connection holds now, 0 when its packets are complete or it has ended.

        `is_new`: it is a part of another packet than before.
        """
        before = self._held.get(connection, 0)
        if is_new or not size_bytes:
            self._held.pop(connection, None)
        if size_bytes:
            self._held[connection] = size_bytes
        self.size_bytes += size_bytes - before
        while self.size_bytes > INCOMPLETE_MAX_BYTES:
            oldest = next(iter(self._held))
            self.size_bytes -= self._held.pop(oldest)
            oldest.close(CloseReason.LIMIT, "too much waits for the rest of its packet")
