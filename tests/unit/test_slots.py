"""What inheriting from a protocol must not do to a class."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import qm
import raft
from qm.edge.batches import PacketRun
from qm.edge.relay.session_intake import SessionIntake
from qm.edge.tcp.connection import Connection
from qm.model.arrivals.arrival import Arrival
from qm.model.arrivals.incoming_streams import History, Stream

HOT = {Arrival, Connection, History, PacketRun, SessionIntake, Stream}
"""Of these there is one per message, session or source; here so that they stay slotted."""
WITH_DICT = {"qm.client.message.ReceivedMessage"}
"""It declares `__dict__`, for what it computes once and keeps."""


def modules(package: ModuleType) -> Iterator[ModuleType]:
    """Every module below a package but generated code and entry points."""
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if ".pb" not in found.name and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def test_no_slotted_class_has_a_dict() -> None:
    """A protocol without `__slots__ = ()` as a base would give each instance one."""
    slotted = {
        each
        for package in (qm, raft)
        for module in modules(package)
        for each in vars(module).values()
        if inspect.isclass(each)
        and each.__module__ == module.__name__
        and "__slots__" in vars(each)
    }
    assert slotted >= HOT
    with_dict = {
        f"{each.__module__}.{each.__qualname__}"
        for each in slotted
        if any("__dict__" in vars(base) for base in each.__mro__)
    }
    assert with_dict == WITH_DICT


def test_no_class_assigns_a_property_that_its_protocol_declares() -> None:
    """mypy lets it pass, and the assignment raises."""
    assigned = [
        f"{module.__name__}.{node.name}.{target.attr}"
        for package in (qm, raft)
        for module in modules(package)
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef)
        for target in ast.walk(node)
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and ast.unparse(target.value) == "self"
        and isinstance(
            found := inspect.getattr_static(getattr(module, node.name), target.attr, None), property
        )
        and found.fset is None
    ]
    assert assigned == []
