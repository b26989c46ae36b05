"""Calls of the objects' members: from arguments to Python and from results to HRESULTs."""

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from qm.client.errors import ClientError, MqError
from qm.client.mqac.message import MSMQMessage
from qm.rpc.dcom.automation.variant import Variant
from qm.rpc.dcom.hresults import ComError, Hresult
from qm.rpc.dcom.mqac.definitions import Method, Parameter
from qm.rpc.dcom.mqac.enumerator import Enumerator
from qm.rpc.dcom.mqac.threads import WouldWait
from qm.rpc.dcom.mqac.values import (
    MISSING,
    Find,
    Misfit,
    attached_of,
    body_of,
    fitted,
    python_of,
    transaction_of,
)

logger: Final = logging.getLogger(__name__)

ENUMERATOR: Final = "_NewEnum"
_BYTES: Final = frozenset(
    {
        "CorrelationId",
        "DestinationSymmetricKey",
        "Extension",
        "SenderCertificate",
        "SenderId",
        "Signature",
    }
)
"""Properties that hold bytes; an empty variant means none."""
BODY: Final = "Body"
_TRANSACTION: Final = "Transaction"
_INIT_NEW: Final = "InitNew"


class Refusal(Exception):
    """An argument is refused: with which HRESULT, and which argument it was."""

    def __init__(self, status: int, place: int) -> None:
        super().__init__(f"{status:08X}, argument {place}")
        self.status = status
        self.place = place
        """Among the [in] parameters."""


class Done(msgspec.Struct):
    """How a member ended."""

    status: int
    result: Any = None
    text: str = ""
    """Why it failed."""


def inputs(method: Method) -> list[Parameter]:
    """Return the [in] parameters."""
    return [one for one in method.parameters if not one.is_out]


def outputs(method: Method) -> list[Parameter]:
    """Return the [out] parameters."""
    return [one for one in method.parameters if one.is_out]


def argument_of(method: Method, parameter: Parameter, variant: Variant | None, find: Find) -> Any:
    """Return an argument as a Python value. Raises ComError."""
    if method.name == BODY:
        return body_of(variant)
    if method.name == _INIT_NEW:
        return attached_of(variant, find)
    if parameter.name == _TRANSACTION:
        return transaction_of(variant, find)
    return python_of(variant, find)


def prepared(facet: Any, method: Method, values: Sequence[Any]) -> Callable[[], Any]:
    """Return the call of a member with arguments that fit. Raises Refusal."""
    name = method.name
    if name == ENUMERATOR:
        return lambda: Enumerator(tuple(facet))
    if method.kind == "get":
        return partial(getattr, facet, name)
    if method.kind != "method":
        return partial(setattr, facet, name, _put_value(method, values[0]))
    named = {}
    # Earlier revisions take fewer arguments: the first ones.
    known_ones = parameters_of(type(facet), name)
    for place, (parameter, value, known) in enumerate(
        zip(inputs(method), values, known_ones, strict=False)
    ):
        if value is MISSING:
            if known.default is inspect.Parameter.empty:
                raise Refusal(Hresult.DISP_E_PARAMNOTOPTIONAL, place)
            continue
        try:
            named[known.name] = fitted(value, parameter.type, known.default)
        except Misfit:
            raise Refusal(Hresult.DISP_E_TYPEMISMATCH, place) from None
    return partial(getattr(facet, name), **named)


def _put_value(method: Method, value: Any) -> Any:
    if method.name in _BYTES:
        if value is MISSING:
            return b""
        if not isinstance(value, bytes):
            raise Refusal(Hresult.DISP_E_TYPEMISMATCH, 0)
        return value
    if value is MISSING:
        raise Refusal(Hresult.DISP_E_PARAMNOTOPTIONAL, 0)
    if method.name == BODY:
        return value
    try:
        return fitted(value, method.parameters[0].type, inspect.Parameter.empty)
    except Misfit:
        raise Refusal(Hresult.DISP_E_TYPEMISMATCH, 0) from None


_PARAMETERS: Final[dict[tuple[type, str], tuple[inspect.Parameter, ...]]] = {}


def parameters_of(made: type[Any], name: str) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a method."""
    found = _PARAMETERS.get((made, name))
    if found is None:
        found = tuple(inspect.signature(getattr(made, name)).parameters.values())[1:]
        _PARAMETERS[made, name] = found
    return found


def executed(call: Callable[[], Any]) -> Done:
    """Make a call; return its result, or the HRESULT of how it failed. Raises WouldWait."""
    try:
        result = call()
    except WouldWait:
        raise
    except MqError as error:
        return Done(int(error.code), text=str(error))
    except ComError as error:
        return Done(error.status, text=str(error))
    except ClientError as error:
        return Done(Hresult.E_UNEXPECTED, text=str(error))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # The objects leave it to Python to refuse what no caller of theirs would give.
        logger.debug("a member refused its arguments", exc_info=error)
        return Done(Hresult.E_INVALIDARG, text=str(error))
    return Done(Hresult.S_OK, result)


def is_immediate(facet: Any, method: Method) -> bool:
    """Whether a member may be tried in the event loop: nothing is done twice if it would wait."""
    return method.kind == "get" or (method.kind != "method" and isinstance(facet, MSMQMessage))


def status_of(method: Method, done: Done) -> int:
    """Return the HRESULT: of members without results, their result says which success it was; an
    enumerator's Next is S_FALSE if it has fewer than it was asked for.
    """
    if isinstance(done.result, tuple):
        array, count = done.result
        return Hresult.S_OK if count == array.count_max else Hresult.S_FALSE
    if done.status or method.kind != "method" or outputs(method):
        return done.status
    if done.result is False:
        return Hresult.S_FALSE
    return done.result if isinstance(done.result, int) and done.result is not True else 0
