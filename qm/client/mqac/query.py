"""MSMQQuery and MSMQQueueInfos [MC-MQAC 3.13, 3.14]: public queues by their properties."""

import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from qm.client.errors import MqError, if_there
from qm.client.mqac.constants import E_INVALIDARG, E_NOTIMPL, RELOPS
from qm.client.mqac.object_factory import ObjectFactory
from qm.client.mqac.queue_attributes import QueueAttributes
from qm.names.guid import guid_from_text
from qm.wire.codes import ErrorCode

_EQ: Final = RELOPS.REL_EQ
_COMPARISONS: Final[dict[int, Callable[[Any, Any], bool]]] = {
    RELOPS.REL_EQ: operator.eq,
    RELOPS.REL_NEQ: operator.ne,
    RELOPS.REL_LT: operator.lt,
    RELOPS.REL_GT: operator.gt,
    RELOPS.REL_LE: operator.le,
    RELOPS.REL_GE: operator.ge,
}


class Term(msgspec.Struct, frozen=True):
    """One condition on a queue's attribute."""

    attribute: str
    relation: int
    value: Any

    def holds(self, found: Any) -> bool:
        """Whether an attribute's value meets it."""
        return found is not None and _COMPARISONS[self.relation](found, self.value)


class MSMQQueueInfos:
    """The queues that a lookup found; one that an application makes itself is unusable."""

    def __init__(self, service: ObjectFactory, format_names: Sequence[str] | None = None) -> None:
        self._service = service
        self._format_names = format_names
        self._next = 0

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.14.4.1.3]."""
        raise MqError(E_NOTIMPL)

    def Reset(self) -> None:
        """Begin with the first queue again."""
        self._found()
        self._next = 0

    def Next(self) -> QueueAttributes | None:
        """Return the next queue, refreshed; None at the end, and again. One that was deleted since
        it was found is left out, or a program could never get past it.
        """
        names = self._found()
        while self._next < len(names):
            info = if_there(partial(self._refreshed, names[self._next]))
            self._next += 1
            if info is not None:
                return info
        return None

    def _refreshed(self, format_name: str) -> QueueAttributes:
        info = self._service.queue_info(format_name)
        info.Refresh()
        return info

    def _found(self) -> Sequence[str]:
        if self._format_names is None:
            raise MqError(ErrorCode.MQ_ERROR_UNINITIALIZED_OBJECT)
        return self._format_names


class MSMQQuery:
    """Finds public queues; the cluster's own catalogue is the directory.

    What is left out adds no condition (AC-A30); all conditions must hold. Relations are RELOPS.
    """

    def __init__(self, service: ObjectFactory) -> None:
        self._service = service

    @property
    def Properties(self) -> NoReturn:
        """Not implemented [MC-MQAC 3.13.4.1.2]."""
        raise MqError(E_NOTIMPL)

    def LookupQueue(
        self,
        QueueGuid: str | None = None,
        ServiceTypeGuid: str | None = None,
        Label: str | None = None,
        CreateTime: datetime | None = None,
        ModifyTime: datetime | None = None,
        RelServiceType: int = _EQ,
        RelLabel: int = _EQ,
        RelCreateTime: int = _EQ,
        RelModifyTime: int = _EQ,
        MulticastAddress: str | None = None,
        RelMulticastAddress: int = _EQ,
    ) -> MSMQQueueInfos:
        """Return the queues that meet every condition [MC-MQAC 3.13.4.1.3].

        GUIDs are text in braces, times aware datetimes; the multicast address "" means that a queue
        has none.
        """
        given = (
            ("identifier", _EQ, _guid(QueueGuid)),
            ("type", RelServiceType, _guid(ServiceTypeGuid)),
            ("label", RelLabel, _text(Label)),
            ("create_time", RelCreateTime, _seconds(CreateTime)),
            ("modify_time", RelModifyTime, _seconds(ModifyTime)),
            ("multicast_address", RelMulticastAddress, _text(MulticastAddress)),
        )
        terms = [_term(*each) for each in given if each[2] is not None]
        wanted = [term for term in terms if term.relation != RELOPS.REL_NOP]
        return MSMQQueueInfos(
            self._service,
            [
                queue.format_name
                for queue in self._service.manager.public_queues()
                if all(term.holds(queue.attributes.get(term.attribute)) for term in wanted)
            ],
        )

    def LookupQueue_v2(
        self,
        QueueGuid: str | None = None,
        ServiceTypeGuid: str | None = None,
        Label: str | None = None,
        CreateTime: datetime | None = None,
        ModifyTime: datetime | None = None,
        RelServiceType: int = _EQ,
        RelLabel: int = _EQ,
        RelCreateTime: int = _EQ,
        RelModifyTime: int = _EQ,
    ) -> MSMQQueueInfos:
        """LookupQueue of earlier revisions, without multicast addresses."""
        return self.LookupQueue(
            QueueGuid,
            ServiceTypeGuid,
            Label,
            CreateTime,
            ModifyTime,
            RelServiceType,
            RelLabel,
            RelCreateTime,
            RelModifyTime,
        )


def _term(attribute: str, relation: int, value: Any) -> Term:
    if relation not in tuple(RELOPS):
        raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"relation {relation}")
    return Term(attribute, relation, value)


def _guid(text: str | None) -> bytes | None:
    if text is None:
        return None
    raw = guid_from_text(text[1:-1]) if text.startswith("{") and text.endswith("}") else None
    if raw is None:
        raise MqError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"{text!r}: not a GUID in braces")
    return raw


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise MqError(E_INVALIDARG, f"{value!r} is no text")


def _seconds(time: datetime | None) -> int | None:
    return int(time.timestamp()) if time is not None else None
