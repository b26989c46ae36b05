"""Values of attributes, converted between callers and commands by the attribute's type."""

from collections.abc import Mapping
from typing import Any, Final

from qm.api.gate.errors import InvalidArgument
from qm.model.values.attributes import Attribute, encode_attribute
from qm.pb import control_pb2

ATTRIBUTES_MAX: Final = 128
_I64_MAX: Final = (1 << 63) - 1
_FIELDS: Final[Mapping[Any, str]] = {
    bool: "flag",
    int: "number",
    str: "text",
    bytes: "data",
    tuple[str, ...]: "texts",
    tuple[bytes, ...]: "datas",
}


def encode_values(
    known: Mapping[str, Attribute], given: Mapping[str, control_pb2.Value], field: str
) -> dict[str, bytes]:
    """Return attributes as commands carry them. Raises InvalidArgument naming the attribute."""
    if len(given) > ATTRIBUTES_MAX:
        raise InvalidArgument(field, f"{len(given)} attributes; {ATTRIBUTES_MAX} are allowed")
    return {
        name: encode_attribute(plain_value(known, name, value, field))
        for name, value in given.items()
    }


def plain_value(
    known: Mapping[str, Attribute], name: str, value: control_pb2.Value, field: str
) -> Any:
    """Return a value as its Python type. Raises InvalidArgument."""
    attribute = known.get(name)
    if attribute is None:
        raise InvalidArgument(
            f"{field}[{name}]",
            f"there is no such attribute; the names are {', '.join(sorted(known))}",
        )
    wanted = _FIELDS[attribute.kind]
    if value.WhichOneof("kind") != wanted:
        raise InvalidArgument(f"{field}[{name}]", f"a value of kind `{wanted}` is needed")
    plain = getattr(value, wanted)
    return tuple(plain.items) if wanted in ("texts", "datas") else plain


def plain_of(value: control_pb2.Value, field: str) -> Any:
    """Return a value as the Python type that its kind says. Raises InvalidArgument."""
    kind = value.WhichOneof("kind")
    if kind is None:
        raise InvalidArgument(field, "a value is missing")
    plain = getattr(value, kind)
    return tuple(plain.items) if kind in ("texts", "datas") else plain


def shown_value(plain: Any) -> control_pb2.Value:
    """Return a value of the state for a caller."""
    if isinstance(plain, bool):
        return control_pb2.Value(flag=plain)
    if isinstance(plain, int):
        return control_pb2.Value(number=min(plain, _I64_MAX))
    if isinstance(plain, str):
        return control_pb2.Value(text=plain)
    if isinstance(plain, bytes):
        return control_pb2.Value(data=plain)
    if all(isinstance(item, str) for item in plain):
        return control_pb2.Value(texts=control_pb2.TextList(items=plain))
    return control_pb2.Value(datas=control_pb2.DataList(items=plain))
