"""What a formatter does."""

from abc import ABC, abstractmethod
from typing import Any

from qm.client.message import Message, ReceivedMessage


class FormatError(ValueError):
    """A value cannot be written, or a body not be read, in this format; the text says why."""


class Formatter(ABC):
    """Turns values into bodies and back."""

    @abstractmethod
    def write(self, value: Any) -> tuple[bytes, int]:
        """Return the body and its VARTYPE. Raises FormatError."""

    @abstractmethod
    def read_body(self, body: bytes, body_type: int) -> Any:
        """Return the value of a body. Raises FormatError."""

    def message(self, value: Any, **properties: Any) -> Message:
        """Return a message to send whose body is this value. Raises FormatError."""
        body, body_type = self.write(value)
        return Message(body=body, body_type=body_type, **properties)

    def read(self, message: ReceivedMessage) -> Any:
        """Return the value of a received message. Raises FormatError."""
        return self.read_body(message.body, message.body_type)
