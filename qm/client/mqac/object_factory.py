"""What messages and destinations need of the service that they were made with."""

from abc import ABC, abstractmethod

from qm.client.mqac.local_manager import LocalManager
from qm.client.mqac.queue_attributes import QueueAttributes


class ObjectFactory(LocalManager, ABC):
    """What every object is made with: `qm.client.mqac.service.MSMQService`."""

    @abstractmethod
    def queue_info(self, format_name: str = "") -> QueueAttributes:
        """Return a new MSMQQueueInfo, of the queue that `format_name` names."""
