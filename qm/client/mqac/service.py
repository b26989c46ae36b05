"""The service with which applications, and objects themselves, create objects."""

from typing_extensions import override

from qm.client.mqac.object_factory import ObjectFactory
from qm.client.mqac.queue_info import MSMQQueueInfo


class MSMQService(ObjectFactory):
    """The local queue manager. Created by `connect` of `qm.client.mqac`."""

    @override
    def queue_info(self, format_name: str = "") -> MSMQQueueInfo:
        """Return a new object for the queue that `format_name` names."""
        info = MSMQQueueInfo(self)
        if format_name:
            info.FormatName = format_name
        return info

    def close(self) -> None:
        """End the connection to the queue manager; the objects are of no use afterwards."""
        self.manager.close()
