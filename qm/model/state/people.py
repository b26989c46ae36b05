"""Groups of the people whom the directory knows."""

from collections.abc import Collection
from typing import Final

from qm.model.state.directory_rows import attribute, user_row
from qm.model.state.ledger import Ledger
from qm.security.sid import Sid

_NOBODY: Final[tuple[Sid, ...]] = ()


def groups_of(ledger: Ledger, sid: Sid) -> tuple[Sid, ...]:
    """Return the SIDs of the groups that the directory gives a user; groups have none."""
    groups = ledger.groups.get(sid)
    if groups is None:
        row = user_row(ledger.state, sid)
        groups = _NOBODY if row is None else tuple(attribute(row.attributes, "groups", ()))
        ledger.groups[sid] = groups
    return groups


def with_groups(ledger: Ledger, sids: Collection[Sid]) -> tuple[Sid, ...]:
    """Return the SIDs of a principal with those of its groups."""
    found = tuple(sids)
    more = [group for sid in found for group in groups_of(ledger, sid)]
    return (*found, *more) if more else found
