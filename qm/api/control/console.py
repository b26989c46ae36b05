"""ConsoleControl: signing in to the web console of a node."""

from typing_extensions import override

from qm.api.gate.calls import Context, caller, certificate_of
from qm.api.gate.errors import Unsupported
from qm.api.gate.operations import Console, NotOffered
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc

SIGN_IN_VALID_S = 60


class ConsoleControl(control_pb2_grpc.ConsoleControlServicer):
    """Implements `quorate.control.v1.ConsoleControl`."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @override
    async def SignIn(self, request: pb.SignInRequest, context: Context) -> pb.SignInReply:
        try:
            url = self._console.sign_in(caller(), certificate_of(context))
        except NotOffered as error:
            raise Unsupported(str(error)) from None
        return pb.SignInReply(url=url, valid_s=SIGN_IN_VALID_S)
