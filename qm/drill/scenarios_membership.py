"""Scenarios of membership: members come, go and change their version."""

from typing import Final

from qm.drill.scenario import Scenario

MEMBERSHIP: Final[tuple[Scenario, ...]] = ()
