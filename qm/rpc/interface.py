"""Interfaces as data: which operations they have, with what parameters and at what protection.

A class implements one by methods of the operations' names, which take a call and its parameters.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from qm.names.guid import guid_from_text
from qm.rpc.ndr.types import NO_PARAMETERS, Parameters
from qm.rpc.pdu.bind import Syntax
from qm.rpc.pdu.codes import AuthLevel


class Fault(Exception):
    """Ends a call with a fault of this status: a Win32 code, an NCA status or an HRESULT."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text or f"fault {status:08X}")
        self.status = status


class Operation(msgspec.Struct, frozen=True):
    """One method of an interface."""

    name: str
    """Of the method that implements it."""
    takes: Parameters[Any] = NO_PARAMETERS
    gives: Parameters[Any] = NO_PARAMETERS


class Interface(msgspec.Struct, frozen=True, eq=False):
    """An interface with its operations by opnum."""

    name: str
    syntax: Syntax
    operations: Mapping[int, Operation]
    level: AuthLevel = AuthLevel.NONE
    """The least protection that its calls need, unless a server asks for more (RP-A18)."""


def interface_syntax(text: str, major: int, minor: int = 0) -> Syntax:
    """Return an interface's identity from the text of its UUID."""
    uuid: Final = guid_from_text(text)
    assert uuid is not None, text
    return Syntax(uuid, major, minor)
