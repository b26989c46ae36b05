"""Sealing of bodies for the disk; the node does it, edges and the API ask for it."""

from typing import Final, Protocol

from qm.model.values.elements import SealedBodies
from qm.security.body_seals import BodySealer


class Sealing(Protocol):
    """Says which bodies are to be sealed before they are proposed, and with what."""

    @property
    def which(self) -> SealedBodies:
        """Which ones. Raises Unavailable while this node does not know."""

    def sealer(self) -> BodySealer:
        """Return what seals with the present key.

        Raises Unavailable while this node cannot: another one may.
        """


class _NoSealing:
    which: Final = SealedBodies.NONE

    def sealer(self) -> BodySealer:
        raise AssertionError("nothing is to be sealed")


NO_SEALING: Final[Sealing] = _NoSealing()
"""Of a queue manager that stores bodies as they come."""
