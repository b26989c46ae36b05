"""Attributes of queues and of the queue manager, as the control plane carries them."""

from typing import Any

from qm.pb import control_pb2


def python_value(value: control_pb2.Value) -> Any:
    """Return an attribute's value from the control plane."""
    kind = value.WhichOneof("kind")
    found = getattr(value, kind) if kind else None
    return list(found.items) if kind in ("texts", "datas") and found is not None else found


def value_of(value: bool | int | str | bytes | list[str]) -> control_pb2.Value:
    """Return an attribute's value as the control plane carries it."""
    match value:
        case bool():
            return control_pb2.Value(flag=value)
        case int():
            return control_pb2.Value(number=value)
        case str():
            return control_pb2.Value(text=value)
        case list():
            return control_pb2.Value(texts=control_pb2.TextList(items=value))
        case _:
            return control_pb2.Value(data=value)


def kept_entry(entry: control_pb2.Ace) -> control_pb2.Ace:
    """Return an entry of GetAcl as SetAcl takes it, without redundant fields."""
    return control_pb2.Ace(type=entry.type, sid=entry.sid, mask=entry.mask)
