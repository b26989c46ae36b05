"""Interfaces through which the objects of [MC-MQAC] refer to each other.

A QueueInfo opens a Queue, a Queue reads Messages and is watched by an Event, a Message names a
QueueInfo: each knows the next only by an interface.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

_Queue = TypeVar("_Queue")


class SendTarget(ABC):
    """What a message may be sent to: an open queue or a destination."""

    __slots__ = ()

    @abstractmethod
    def opened_names(self) -> list[str]:
        """Return the format names for Send. Raises MqError if it may not be sent to."""


class OpenQueue(SendTarget):
    """What QueueInfo.Open returns: `qm.client.mqac.queue.MSMQQueue`."""

    @abstractmethod
    def Close(self) -> None:
        """Close it. Raises MQ_ERROR_INVALID_HANDLE if it is closed."""


class EventSink(ABC, Generic[_Queue]):
    """What is notified once that a message is there: `qm.client.mqac.event.MSMQEvent`."""

    @abstractmethod
    def watch(self, queue: _Queue, cursor: int, look: Callable[[], object]) -> None:
        """Notify the application once, when `look` returns or raises MqError."""
