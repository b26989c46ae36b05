"""Programs of MSMQ objects on another computer, as a process.

    python -m tests.cluster.object_program USER COUNT HOST...

Each creates its objects at the first host that lets it, and works: it sends and receives a message
of `orders`, and moves one from `work` to `done` in a transaction. When its node is gone it asks the
next one for what it had, and creates new objects there. It prints a line for each thing that it
knows:

    opened HOST                     its objects are there
    sent BODY, unsure BODY          a Send; one that had no answer
    taken BODY                      it has seen this body of `orders`
    moved BODY, undecided BODY      a Commit; one that had no answer
    ended HOST ERROR                a call failed
    foreign HOST HRESULT            what another node says about an object of the one before

With `holds` for COUNT, it receives one message of `work` in a transaction that it never ends, and
prints `held BODY`.
"""

import asyncio
import itertools
import sys

from qm.rpc.client import RpcFailed
from qm.rpc.dcom.automation.dispatch import IDISPATCH
from qm.rpc.dcom.hresults import ComError
from qm.rpc.interface import Fault
from qm.wire.codes import ErrorCode
from tests.cluster.remote_reader import CONNECT_S, PASSWORD, PAUSE_S
from tests.unit.rpc.dcom.scripts import RECEIVE, SEND, Late, Program

ORDERS, WORK, DONE = (f".\\private$\\{name}" for name in ("orders", "work", "done"))
HOLDS = "holds"
SENDS = 12
"""Messages that each program sends."""
WAIT_MS = 500
_NOTHING = (ErrorCode.MQ_ERROR_IO_TIMEOUT, ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
_FAILED = (ComError, Fault, RpcFailed, TimeoutError)


def say(*words: object) -> None:
    print(*words, flush=True)


class Objects:
    """What a program works with, at one node."""

    def __init__(self, program: Program) -> None:
        self.program = program

    async def open(self) -> None:
        """Create and open everything. Raises what calls do."""
        program = self.program
        self.dispenser = await program.create("MSMQTransactionDispenser")
        self.message = await program.create("MSMQMessage")
        self.orders = await program.opened(RECEIVE, ORDERS)
        self.to_orders = await program.opened(SEND, ORDERS)
        self.work = await program.opened(RECEIVE, WORK)
        self.to_done = await program.opened(SEND, DONE)


async def received(queue: Late, *transaction: Late) -> str:
    """Receive a message and read its body; "" if there is none. Raises what calls do."""
    try:
        found = await queue.call("Receive", *transaction, ReceiveTimeout=WAIT_MS)
    except ComError as error:
        if error.status in _NOTHING:
            return ""
        raise
    body = str(await found.get("Body"))
    await found.release()
    return body


class Worker:
    """A program that goes on at another node when its own is gone."""

    def __init__(self, user: str, number: int, hosts: list[str]) -> None:
        self._user, self._name = user, f"{user}.{number}"
        self._hosts = itertools.cycle(hosts)
        self._unsent = [f"{self._name}.{k:02}" for k in range(SENDS)]
        self._last: Late | None = None
        """A queue of the node before."""

    async def run(self) -> None:
        for host in self._hosts:
            program = Program(host, self._user, PASSWORD)
            try:
                await self._work_at(host, program)
            except _FAILED as error:
                say("ended", host, error)
                await asyncio.sleep(PAUSE_S)
            finally:
                program.close()

    async def _work_at(self, host: str, program: Program) -> None:
        objects = Objects(program)
        async with asyncio.timeout(CONNECT_S):
            await objects.open()
        say("opened", host)
        if self._last is not None:
            await self._ask_for_last(host, program)
        self._last = objects.orders
        while True:
            await self._send(objects)
            if body := await received(objects.orders):
                say("taken", body)
            await self._move(objects)

    async def _ask_for_last(self, host: str, program: Program) -> None:
        assert self._last is not None
        try:
            await program.server.call(self._last.ref.ipid, IDISPATCH, 3, [])
        except Fault as fault:
            say("foreign", host, f"{fault.status:08X}")

    async def _send(self, objects: Objects) -> None:
        if not self._unsent:
            return
        body = self._unsent[-1]
        await objects.message.put("Body", body)
        self._unsent.pop()
        try:
            await objects.message.call("Send", objects.to_orders)
        except _FAILED:
            say("unsure", body)
            raise
        say("sent", body)

    async def _move(self, objects: Objects) -> None:
        transaction = await objects.dispenser.call("BeginTransaction")
        body = await received(objects.work, transaction)
        if not body:
            await transaction.call("Abort")
            return
        await objects.message.put("Body", body)
        await objects.message.call("Send", objects.to_done, transaction)
        try:
            await transaction.call("Commit")
        except _FAILED:
            say("undecided", body)
            raise
        say("moved", body)
        await transaction.release()


async def hold(user: str, host: str) -> None:
    """Receive a message in a transaction, and leave it so."""
    objects = Objects(Program(host, user, PASSWORD))
    await objects.open()
    transaction = await objects.dispenser.call("BeginTransaction")
    say("held", await received(objects.work, transaction))
    await asyncio.Event().wait()


async def main(user: str, count: str, hosts: list[str]) -> None:
    if count == HOLDS:
        await hold(user, hosts[0])
    await asyncio.gather(*(Worker(user, number, hosts).run() for number in range(int(count))))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
