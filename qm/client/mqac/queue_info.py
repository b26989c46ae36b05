"""MSMQQueueInfo [MC-MQAC 3.10]: the attributes of a queue, and the way to open it."""

from typing import Final

from typing_extensions import override

from qm.client.client import Access
from qm.client.errors import ClientError, MqError
from qm.client.mqac import naming
from qm.client.mqac.constants import MQACCESS, MQSHARE
from qm.client.mqac.local_manager import hresult_of
from qm.client.mqac.object_factory import ObjectFactory
from qm.client.mqac.queue import MSMQQueue
from qm.client.mqac.queue_attributes import QueueAttributes
from qm.wire.codes import ErrorCode

_ACCESS: Final = {
    MQACCESS.MQ_RECEIVE_ACCESS: Access.RECEIVE,
    MQACCESS.MQ_SEND_ACCESS: Access.SEND,
    MQACCESS.MQ_PEEK_ACCESS: Access.PEEK,
    MQACCESS.MQ_RECEIVE_ACCESS | MQACCESS.MQ_ADMIN_ACCESS: Access.RECEIVE_ADMIN,
    MQACCESS.MQ_PEEK_ACCESS | MQACCESS.MQ_ADMIN_ACCESS: Access.PEEK_ADMIN,
}


class MSMQQueueInfo(QueueAttributes):
    """A queue's name and properties. Errors are MqError with the HRESULT as `code`."""

    def __init__(self, service: ObjectFactory) -> None:
        super().__init__(service)
        self._factory = service

    @override
    def Open(self, Access: int, ShareMode: int) -> MSMQQueue:
        """Open the queue [MC-MQAC 3.10.4.1.28]."""
        name = self._resolve()
        access = _ACCESS.get(MQACCESS(Access))
        is_send = access is not None and MQACCESS(Access) == MQACCESS.MQ_SEND_ACCESS
        if access is None or (is_send and ShareMode != MQSHARE.MQ_DENY_NONE):
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE)
        if naming.is_send_only(name) and not is_send:
            raise MqError(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE)
        try:
            opened = self._service.client.open_queue(
                name, access, exclusive=ShareMode == MQSHARE.MQ_DENY_RECEIVE_SHARE
            )
        except ClientError as error:
            raise hresult_of(error) from error
        return MSMQQueue(self._factory, self, opened, MQACCESS(Access), MQSHARE(ShareMode))
