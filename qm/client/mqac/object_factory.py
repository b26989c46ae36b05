"""What objects need of the service that created them."""

from abc import ABC, abstractmethod
from typing import Final

from qm.client.mqac.manager import QueueManager
from qm.client.mqac.queue_attributes import QueueAttributes


class ObjectFactory(ABC):
    """What creates every object: `qm.client.mqac.service.MSMQService`."""

    def __init__(self, manager: QueueManager, *, null_on_empty: bool = False) -> None:
        """`null_on_empty`: reads that find nothing return None, as Visual Basic sees it, instead
        of raising MQ_ERROR_IO_TIMEOUT or MQ_ERROR_MESSAGE_NOT_FOUND (AC-A20).
        """
        self.manager: Final = manager
        self.null_on_empty: Final = null_on_empty

    @abstractmethod
    def queue_info(self, format_name: str = "") -> QueueAttributes:
        """Return a new MSMQQueueInfo for the queue that `format_name` names."""
