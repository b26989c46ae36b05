"""MSMQQueueInfo [MC-MQAC 3.10]: the attributes of a queue, and the way to open it."""

from typing_extensions import override

from qm.client.errors import MqError
from qm.client.mqac import naming
from qm.client.mqac.constants import MQACCESS, MQSHARE
from qm.client.mqac.object_factory import ObjectFactory
from qm.client.mqac.queue import MSMQQueue
from qm.client.mqac.queue_attributes import QueueAttributes
from qm.wire.codes import ErrorCode


class MSMQQueueInfo(QueueAttributes):
    """A queue's name and properties. Errors are MqError with the HRESULT as `code`."""

    __slots__ = ("_factory",)

    def __init__(self, service: ObjectFactory) -> None:
        super().__init__(service.manager)
        self._factory = service

    @override
    def Open(self, Access: int, ShareMode: int) -> MSMQQueue:
        """Open the queue, or several for sending [MC-MQAC 3.10.4.1.28]."""
        name = self._resolve()
        access, is_shared = MQACCESS(Access), ShareMode == MQSHARE.MQ_DENY_NONE
        is_send = access == MQACCESS.MQ_SEND_ACCESS
        if is_send and not is_shared:
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE)
        if naming.is_send_only(name) and not is_send:
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE)
        share_mode = MQSHARE.MQ_DENY_NONE if is_shared else MQSHARE.MQ_DENY_RECEIVE_SHARE
        opened = self._manager.open_queue(name, access, share_mode)
        return MSMQQueue(self._factory, self, opened, access, share_mode)
