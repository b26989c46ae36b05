"""What messages and destinations need of the service that created them."""

from abc import ABC, abstractmethod

from qm.client.mqac.local_manager import LocalManager
from qm.client.mqac.queue_attributes import QueueAttributes


class ObjectFactory(LocalManager, ABC):
    """What creates every object: `qm.client.mqac.service.MSMQService`."""

    @abstractmethod
    def queue_info(self, format_name: str = "") -> QueueAttributes:
        """Return a new MSMQQueueInfo for the queue that `format_name` names."""
