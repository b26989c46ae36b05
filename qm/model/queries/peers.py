"""Other queue managers, as far as messages of theirs have arrived (3.1.1.5)."""

from qm.model.queries.view import View
from qm.model.state.bindings import META_BINDINGS
from qm.model.state.tables import Table
from qm.model.values.records import BindingPolicy


def binding_policy(view: View) -> BindingPolicy | None:
    """Return how GUIDs are bound to addresses, None if no leader has said so yet."""
    return view.ledger.record(Table.META, META_BINDINGS, BindingPolicy)
