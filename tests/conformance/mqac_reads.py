"""The rules that every read method of MSMQQueue follows [MC-MQAC 3.11.4]."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from qm.client.mqac import (
    MSMQMessage,
    MSMQQueue,
    MSMQQueueInfo,
    MSMQService,
    MSMQTransactionDispenser,
)
from qm.client.mqac.constants import MQACCESS, MQTRANSACTION
from tests.conformance.mqac_world import PEEK, RECEIVE, SEND, fails, info_of, made, opened

INVALID_PARAMETER, INVALID_HANDLE = 0xC00E_0006, 0xC00E_0007
IO_TIMEOUT, ILLEGAL_CURSOR_ACTION = 0xC00E_001B, 0xC00E_001C
ALREADY_RECEIVED, ACCESS_DENIED, NOT_FOUND = 0xC00E_001D, 0xC00E_0025, 0xC00E_0088
OLE_E_BLANK, E_INVALIDARG = 0x8004_0007, 0x8007_0057
ADMIN = MQACCESS.MQ_ADMIN_ACCESS
INFINITE = 0xFFFF_FFFF
WAIT_S = 20
AT_ONCE_S = 1.0
BLOCKED_S = 0.1
SOON_MS = 60
LATE_S = 10 * SOON_MS / 1_000
"""A time-out that has taken so long was no matter of milliseconds."""
CONNECTOR = "{01020304-0506-0708-090A-0B0C0D0E0F10}"
NO_CONNECTOR = "{00000000-0000-0000-0000-000000000000}"


def send(service: MSMQService, info: MSMQQueueInfo, *bodies: str, **properties: object) -> None:
    """Send messages with these bodies; to a transactional queue, each on its own."""
    is_transactional = info.IsTransactional2
    queue = opened(info, SEND)
    for body in bodies:
        message = MSMQMessage(service)
        message.Body = body
        for name, value in properties.items():
            setattr(message, name, value)
        single = MQTRANSACTION.MQ_SINGLE_MESSAGE
        message.Send(queue, single if is_transactional else MQTRANSACTION.MQ_NO_TRANSACTION)
    queue.Close()


def filled(service: MSMQService, *bodies: str, is_transactional: bool = False) -> MSMQQueueInfo:
    """A new queue with these messages."""
    info = made(service, is_transactional=is_transactional)
    send(service, info, *bodies)
    return info


def body(message: MSMQMessage | None) -> object:
    """The body of a message that must be there."""
    assert message is not None
    return message.Body


def takes(name: str, parameter: str) -> bool:
    """Whether a method has a parameter."""
    return parameter in inspect.signature(getattr(MSMQQueue, name)).parameters


def arguments(name: str, lookup_id: int | str = 1, **others: Any) -> dict[str, Any]:
    """What a method needs to look at one message without waiting."""
    found = dict(others)
    if takes(name, "LookupId"):
        found["LookupId"] = lookup_id
    if takes(name, "ReceiveTimeout"):
        found.setdefault("ReceiveTimeout", 0)
    return found


def ready(service: MSMQService, name: str, *bodies: str) -> tuple[MSMQQueue, dict[str, Any], str]:
    """An open queue of these messages, the arguments with which a method reads one, and its body.

    The cursor is at the first message, so that PeekNext finds the second. Each names a connector.
    """
    info = made(service)
    send(service, info, *bodies, ConnectorTypeGuid=CONNECTOR)
    queue = opened(info)
    at = {"Previous": 2, "Next": 0}
    place = next(
        (number for word, number in at.items() if word in name and takes(name, "LookupId")), 1
    )
    ids = [message.LookupId for message in walk(queue)]
    if "PeekNext" in name and not takes(name, "LookupId"):
        queue.PeekCurrent(ReceiveTimeout=0)
    wanted = 1
    if "First" in name or name.startswith(("Receive_v1", "Peek_v1")) or name in ("Receive", "Peek"):
        wanted = 0
    elif "Last" in name:
        wanted = len(bodies) - 1
    elif "Current" in name:
        wanted = 0
    return queue, arguments(name, ids[place]), bodies[wanted]


def first_of(queue: MSMQQueue) -> MSMQMessage:
    """The first message, which must be there; the cursor stays."""
    message = queue.PeekFirstByLookupId()
    assert message is not None
    return message


def walk(queue: MSMQQueue) -> list[MSMQMessage]:
    """Every message, in order; the cursor stays."""
    found = [first_of(queue)]
    last = queue.PeekLastByLookupId()
    assert last is not None
    while found[-1].LookupId != last.LookupId:
        message = queue.PeekNextByLookupId(found[-1].LookupId)
        assert message is not None
        found.append(message)
    return found


# Rules -----------------------------------------------------------------------------------------


def is_guarded(service: MSMQService, name: str) -> None:
    """LookupId, then initialised, open, access, in this order."""
    info = filled(service, "a")
    wrong_access = opened(info, SEND), *([opened(info, PEEK)] if name.startswith("R") else [])
    closed, good = opened(info), opened(info)
    closed.Close()
    if takes(name, "LookupId"):
        for queue in (MSMQQueue(service), closed, *wrong_access, good):
            for none in (0, "0"):
                with fails(INVALID_PARAMETER):
                    getattr(queue, name)(none)
    with fails(OLE_E_BLANK):
        getattr(MSMQQueue(service), name)(**arguments(name))
    with fails(INVALID_HANDLE):
        getattr(closed, name)(**arguments(name))
    for queue in wrong_access:
        with fails(ACCESS_DENIED):
            getattr(queue, name)(**arguments(name))
        queue.Close()
        with fails(INVALID_HANDLE):  # closed comes before access
            getattr(queue, name)(**arguments(name))


def may_be_read(service: MSMQService, name: str) -> None:
    """Peeks need peek access or more, receives need receive access; an administrator's do, too,
    which are to what waits for another queue manager.
    """
    is_receive = name.startswith("R")
    for access in (RECEIVE, PEEK, RECEIVE | ADMIN, PEEK | ADMIN):
        far = f"DIRECT=TCP:127.255.255.254\\private$\\{name}{access}"
        info = info_of(service, name=far) if access & ADMIN else made(service)
        for text in ("a", "b", "c"):
            message = MSMQMessage(service)
            message.Body = text
            message.Send(opened(info, SEND))
        queue, look = opened(info, access), opened(info, PEEK | access & ADMIN)
        ids = [message.LookupId for message in walk(look)]
        assert len(ids) == 3
        if name.startswith("PeekNext") and not takes(name, "LookupId"):
            queue.PeekCurrent(ReceiveTimeout=0)
        if is_receive and not access & RECEIVE:
            with fails(ACCESS_DENIED):
                getattr(queue, name)(**arguments(name, ids[1]))
        else:
            found = getattr(queue, name)(**arguments(name, ids[1]))
            assert found.LookupId in ids
            if is_receive:
                ids.remove(found.LookupId)
        assert [message.LookupId for message in walk(look)] == ids


def has_defaults(service: MSMQService, name: str) -> None:
    """What is left out: no destination, the body, no connector type, MTS, for ever."""
    signature = inspect.signature(getattr(MSMQQueue, name))
    wanted = {
        "Transaction": MQTRANSACTION.MQ_MTS_TRANSACTION,
        "WantDestinationQueue": False,
        "WantBody": True,
        "WantConnectorType": False,
        "ReceiveTimeout": 0xFFFF_FFFF,
    }
    for parameter, default in wanted.items():
        if parameter in signature.parameters:
            assert signature.parameters[parameter].default == default
    queue, given, text = ready(service, name, "a", "b", "c")
    given.pop("ReceiveTimeout", None)
    found = getattr(queue, name)(**given)
    assert found.Body == text
    assert (found.DestinationQueueInfo, found.ConnectorTypeGuid) == (None, NO_CONNECTOR)
    queue, given, _ = ready(service, name, "a", "b", "c")
    found = getattr(queue, name)(**given, WantDestinationQueue=True, WantBody=False)
    assert found.DestinationQueueInfo is not None
    assert (found.Body, found.BodyLength) == (None, 0)
    if takes(name, "WantConnectorType"):
        queue, given, _ = ready(service, name, "a", "b", "c")
        found = getattr(queue, name)(**given, WantConnectorType=True)
        assert (found.ConnectorTypeGuid, found.DestinationQueueInfo) == (CONNECTOR, None)


def refuses_other_transactions(service: MSMQService, name: str) -> None:
    """Another type is an error, and nothing is read."""
    queue, given, _ = ready(service, name, "a", "b", "c")
    for wrong in ("mine", b"mine", 1.0, True, 4, object()):
        with fails(E_INVALIDARG):
            getattr(queue, name)(**given, Transaction=wrong)
    assert len(walk(queue)) == 3


def finds_nothing(service: MSMQService, name: str) -> None:
    """Nothing suitable, at once: an error, and no message. By LookupId there is no other time."""
    assert takes(name, "ReceiveTimeout") == ("LookupId" not in name)
    info = filled(service, "a")
    queue = opened(info)
    only = walk(queue)[0].LookupId
    queue.ReceiveByLookupId(only)
    if takes(name, "LookupId"):
        given = arguments(name, only)
    else:
        given = arguments(name)
        if name.startswith("PeekNext"):
            send(service, info, "b")
            assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "b"
    took: list[float] = []
    # Behind the end there is no next one any more.
    for _ in range(1 if name.startswith("PeekNext") else 3):
        begun = time.monotonic()
        with fails(NOT_FOUND):
            getattr(queue, name)(**given)
        took.append(time.monotonic() - begun)
    assert min(took) < AT_ONCE_S
    lenient = opened(
        info_of(MSMQService(service.manager, null_on_empty=True), name=info.FormatName or "")
    )
    if name.startswith("PeekNext") and not takes(name, "LookupId"):
        assert body(lenient.PeekCurrent(ReceiveTimeout=0)) == "b"
    assert getattr(lenient, name)(**given) is None
    if takes(name, "LookupId"):
        finds_nothing_else(service, name)
    elif "LookupId" in name:
        finds_none_that_is_locked(service, name)
    if "Current" in name:  # behind a message, too
        send(service, info, "c")
        assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == "c"
        begun = time.monotonic()
        with fails(NOT_FOUND):
            getattr(queue, name)(**given)
        assert time.monotonic() - begun < WAIT_S


def finds_nothing_in_a_transaction(service: MSMQService, name: str) -> None:
    """So it is in a transaction."""
    queue = opened(made(service, is_transactional=True))
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    begun = time.monotonic()
    with fails(NOT_FOUND):
        getattr(queue, name)(transaction, ReceiveTimeout=0)
    assert time.monotonic() - begun < WAIT_S
    transaction.Abort()


def finds_nothing_else(service: MSMQService, name: str) -> None:
    """Nothing suitable among others: nothing behind the last, before the first, or beside what is
    gone (AC-A50); and what a transaction has locked is not suitable.
    """
    queue = opened(filled(service, *"abcde"))
    first, gone, *_, last = [message.LookupId for message in walk(queue)]
    queue.ReceiveByLookupId(gone)
    wrong = [gone, 1 << 60, *([last] if "Next" in name else []), *([first] * ("Previous" in name))]
    for lookup_id in wrong:
        begun = time.monotonic()
        with fails(NOT_FOUND):
            getattr(queue, name)(lookup_id)
        assert time.monotonic() - begun < WAIT_S
    assert [message.Body for message in walk(queue)] == list("acde")
    info = filled(service, "a", "b", is_transactional=True)
    queue, taker = opened(info), opened(info)
    ids = [message.LookupId for message in walk(queue)]
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    locked = ids[0 if "Previous" in name else 1]
    taker.ReceiveByLookupId(locked, transaction)
    at = {"Next": ids[0], "Previous": ids[1]}
    place = next((lookup_id for word, lookup_id in at.items() if word in name), locked)
    with fails(NOT_FOUND):
        getattr(queue, name)(place)
    transaction.Abort()
    assert getattr(queue, name)(place).LookupId == locked


def finds_none_that_is_locked(service: MSMQService, name: str) -> None:
    """Of three messages the one between is the first and the last, and then there is none."""
    info = filled(service, "a", "b", "c", is_transactional=True)
    queue, taker = opened(info), opened(info)
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    for taken in (taker.ReceiveFirstByLookupId, taker.ReceiveLastByLookupId):
        taken(transaction)
    if not takes(name, "Transaction"):
        assert body(getattr(queue, name)()) == "b"
    taker.ReceiveFirstByLookupId(transaction)
    with fails(NOT_FOUND):
        getattr(queue, name)()
    transaction.Abort()
    assert body(getattr(queue, name)()) == ("c" if "Last" in name else "a")


def waits(service: MSMQService, name: str) -> None:
    """A finite time ends in an error; within it, and without end, it waits for a message."""
    times: list[dict[str, Any]] = [{}, {"ReceiveTimeout": WAIT_S * 1_000}]
    for given in times:
        info = made(service)
        queue = opened(info)
        if name.startswith("PeekNext"):
            send(service, info, "before")
            queue.PeekCurrent(ReceiveTimeout=0)
        if "Current" in name and given:  # behind a message, too
            send(service, info, "before")
            assert body(queue.ReceiveCurrent(ReceiveTimeout=0)) == "before"
        times_out(queue, name)
        if name.startswith("PeekNext"):
            queue.Reset()
            queue.PeekCurrent(ReceiveTimeout=0)
        read = partial(getattr(queue, name), **given)
        assert what_comes(read, partial(send, service, info, "late")) == ["late"]
    waits_for_a_suitable_one(service, name)


def times_out(queue: MSMQQueue, name: str) -> None:
    """It takes as long as it is told: one of several, on a machine that has more to do."""
    took: list[float] = []
    for _ in range(1 if name.startswith("PeekNext") else 3):
        begun = time.monotonic()
        with fails(IO_TIMEOUT):
            getattr(queue, name)(ReceiveTimeout=SOON_MS)
        took.append(time.monotonic() - begun)
    assert min(took) >= SOON_MS / 1_000
    if len(took) > 1:
        assert min(took) < LATE_S


def waits_for_a_suitable_one(service: MSMQService, name: str) -> None:
    """A message that a transaction has locked is none, until it is given back."""
    info = filled(service, "before", "late", is_transactional=True)
    queue, taker = opened(info), opened(info)
    if name.startswith("PeekNext"):
        queue.PeekCurrent(ReceiveTimeout=0)
    else:
        assert body(taker.Receive(ReceiveTimeout=0)) == "before"
    transaction = MSMQTransactionDispenser(service).BeginTransaction()
    taker.ReceiveLastByLookupId(transaction)
    with fails(NOT_FOUND):
        getattr(queue, name)(ReceiveTimeout=0)
    if name.startswith("PeekNext"):
        queue.Reset()
        queue.PeekCurrent(ReceiveTimeout=0)
    assert what_comes(getattr(queue, name), transaction.Abort) == ["late"]


def what_comes(read: Callable[[], MSMQMessage | None], bring: Callable[[], object]) -> list[object]:
    """What a read finds that has begun before there is anything, and is there still."""
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(body(read())))
    waiting.start()
    waiting.join(BLOCKED_S)
    assert waiting.is_alive()
    bring()
    waiting.join(WAIT_S)
    return found


def locks(service: MSMQService, name: str, *, is_visible: bool = False) -> None:
    """In a transaction a message is locked; commit removes it, abort gives it back."""
    info = filled(service, "a", "b", "c", is_transactional=True)
    dispenser = MSMQTransactionDispenser(service)
    look, taker = opened(info, PEEK), opened(info)
    ids = [message.LookupId for message in walk(look)]
    place = 2 if "Previous" in name else 0 if "Next" in name else 1
    for ending in ("Abort", "Commit"):
        queue = opened(info)
        transaction = dispenser.BeginTransaction()
        found = getattr(queue, name)(**arguments(name, ids[place], Transaction=transaction))
        visible = [message.LookupId for message in walk(look)]
        assert (found.LookupId in visible) == is_visible
        if is_visible:
            assert {message.LookupId for message in sights(look, *ids)} == {ids[1]}
        with fails(NOT_FOUND):  # nobody else takes it, whoever sees it
            taker.ReceiveByLookupId(found.LookupId)
        getattr(transaction, ending)()
        visible = [message.LookupId for message in walk(look)]
        assert (found.LookupId in visible) == (ending == "Abort")
    # MTS and XA take the transaction of the context; there is none (AC-A21), so nothing is locked.
    for ambient in (MQTRANSACTION.MQ_MTS_TRANSACTION, MQTRANSACTION.MQ_XA_TRANSACTION):
        queue = opened(filled(service, "a", "b", "c", is_transactional=True))
        ids = [message.LookupId for message in walk(queue)]
        given = arguments(name, ids[place], Transaction=ambient)
        assert getattr(queue, name)(**given) is not None
        assert len(walk(queue)) == 2


def sights(look: MSMQQueue, before: str, at: str, after: str) -> list[MSMQMessage]:
    """What every peek shows that looks at the second of three messages."""
    look.Reset()
    look.PeekCurrent(ReceiveTimeout=0)
    found = [
        look.PeekNext(ReceiveTimeout=0),
        look.PeekCurrent(ReceiveTimeout=0),
        look.PeekByLookupId(at),
        look.PeekNextByLookupId(before),
        look.PeekPreviousByLookupId(after),
    ]
    return [message for message in found if message is not None]


def journals(service: MSMQService, name: str) -> None:
    """Outside a transaction a message goes, and a journaling queue keeps a copy; not a system
    queue, which has no journal.
    """
    for is_journaling, transaction, lifetime_s in (
        *((True, transaction, -1) for transaction in (0, None, 3)),
        (False, 0, -1),
        (False, 0, 1_000),  # with a deadline that ends with it
    ):
        info = made(service)
        info.Journal = int(is_journaling)
        info.Update()
        send(service, info, "a", "b", "c", MaxTimeToReceive=lifetime_s)
        queue = opened(info)
        ids = [message.LookupId for message in walk(queue)]
        place = 2 if "Previous" in name else 0 if "Next" in name else 1
        found = getattr(queue, name)(**arguments(name, ids[place], Transaction=transaction))
        assert found.LookupId not in [message.LookupId for message in walk(queue)]
        journal = opened(info_of(service, name=f"{info.FormatName};JOURNAL"))
        if is_journaling:
            assert body(journal.Receive(ReceiveTimeout=0)) == found.Body
        with fails(NOT_FOUND):
            journal.Receive(ReceiveTimeout=0)
    copies_no_copy(service, name)


def copies_no_copy(service: MSMQService, name: str) -> None:
    """A system queue keeps no copy of what is taken from it: not in itself, not elsewhere."""
    info = made(service)
    info.Journal = 1
    info.Update()
    send(service, info, "a", "b", "c")
    queue = opened(info)
    for _ in range(3):
        queue.Receive(ReceiveTimeout=0)
    journal = opened(info_of(service, name=f"{info.FormatName};JOURNAL"))
    ids = [message.LookupId for message in walk(journal)]
    place = 2 if "Previous" in name else 0 if "Next" in name else 1
    found = getattr(journal, name)(**arguments(name, ids[place], Transaction=None))
    ids.remove(found.LookupId)
    assert [message.LookupId for message in walk(journal)] == ids
    elsewhere = opened(info_of(service, name="DIRECT=OS:QUORATE\\SYSTEM$;JOURNAL"))
    with fails(NOT_FOUND):
        elsewhere.Receive(ReceiveTimeout=0)


def misses_its_own(service: MSMQService, name: str) -> None:
    """The message under the cursor was taken by somebody else: that is so at once, whatever comes
    behind it and however long the read would wait.
    """
    for timeout in (0, WAIT_S * 1_000, INFINITE):
        for others in (0, 1):
            info = filled(service, "a", *["b"] * others)
            queue, other = opened(info), opened(info)
            queue.PeekCurrent(ReceiveTimeout=0)
            assert body(other.Receive(ReceiveTimeout=0)) == "a"
            for _ in range(2):
                begun = time.monotonic()
                with fails(ALREADY_RECEIVED):
                    getattr(queue, name)(ReceiveTimeout=timeout)
                assert time.monotonic() - begun < WAIT_S
            left = [other.Receive(ReceiveTimeout=0) for _ in range(others)]
            assert [body(message) for message in left] == ["b"] * others


def advances(service: MSMQService, name: str) -> None:
    """A receive at the cursor leaves it behind its message, in a transaction or not."""
    for is_transactional in (False, True):
        queue = opened(filled(service, *"abcd", is_transactional=is_transactional))
        given: dict[str, Any] = {"ReceiveTimeout": 0}
        if is_transactional:
            given["Transaction"] = MSMQTransactionDispenser(service).BeginTransaction()
        queue.PeekCurrent(ReceiveTimeout=0)
        queue.PeekNext(ReceiveTimeout=0)
        for text in ("b", "c"):
            assert body(getattr(queue, name)(**given)) == text
        if is_transactional:
            given["Transaction"].Abort()  # they are there again, and the cursor is behind them
        assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "d"


def needs_a_place(service: MSMQService, name: str) -> None:
    """A cursor that was never used, or is past the end, cannot go on: at once, if it waited or not
    when it came there, and whatever has come since.
    """
    info = filled(service, "a")
    queue = opened(info)
    for timeout in (0, SOON_MS, INFINITE):
        with fails(ILLEGAL_CURSOR_ACTION):
            getattr(queue, name)(ReceiveTimeout=timeout)
    for timeout, none in ((0, NOT_FOUND), (SOON_MS, IO_TIMEOUT)):
        queue.Reset()
        queue.PeekCurrent(ReceiveTimeout=0)
        with fails(none):
            getattr(queue, name)(ReceiveTimeout=timeout)
        for again in (0, SOON_MS, INFINITE):
            with fails(ILLEGAL_CURSOR_ACTION):
                getattr(queue, name)(ReceiveTimeout=again)
    send(service, info, "b")
    with fails(ILLEGAL_CURSOR_ACTION):
        getattr(queue, name)(ReceiveTimeout=0)
    assert body(queue.PeekCurrent(ReceiveTimeout=0)) == "b"
    queue.Reset()
    with fails(ILLEGAL_CURSOR_ACTION):
        getattr(queue, name)(ReceiveTimeout=0)


def same_as(service: MSMQService, name: str, newer: str) -> None:
    """The earlier form is the newer one without its last argument."""
    parameters = [
        [*inspect.signature(getattr(MSMQQueue, each)).parameters] for each in (name, newer)
    ]
    assert [*parameters[0], "WantConnectorType"] == parameters[1]
    for each in (name, newer):
        queue, given, text = ready(service, each, "a", "b", "c")
        assert body(getattr(queue, each)(**given)) == text
    # Both read from the head or at the cursor, and leave the cursor at the same place.
    seen = []
    for each in (name, newer):
        queue = opened(filled(service, "a", "b", "c", "d"))
        queue.PeekCurrent(ReceiveTimeout=0)
        queue.PeekNext(ReceiveTimeout=0)
        texts = [body(getattr(queue, each)(ReceiveTimeout=0))]
        texts.append(body(queue.PeekCurrent(ReceiveTimeout=0)))
        seen.append([*texts, *(message.Body for message in walk(queue))])
    assert seen[0] == seen[1]
    head, cursor = ("a", "b")
    at_cursor = "c" if "Next" in name else cursor
    assert seen[0][0] == (at_cursor if "Current" in name or "Next" in name else head)
    for each in (name, newer):
        takes_the_same_arguments(service, each)


def takes_the_same_arguments(service: MSMQService, name: str) -> None:
    """What can be said to an earlier form, by position, too, and what it does not know."""
    before: list[Any] = [MQTRANSACTION.MQ_NO_TRANSACTION] * takes(name, "Transaction")
    for wants, seen in (
        ((True, False), (None, True)),
        ((False, True), ("text", False)),
        ((True, True), ("text", True)),
        ((False, False), (None, False)),
    ):
        queue, _, _ = ready(service, name, "text", "text", "text")
        found = getattr(queue, name)(*before, *wants, 0)
        assert (found.Body, found.DestinationQueueInfo is not None) == seen
        assert found.ConnectorTypeGuid == NO_CONNECTOR
    info = filled(service, "only", is_transactional=True)
    queue = opened(info)
    if before:
        transaction = MSMQTransactionDispenser(service).BeginTransaction()
        getattr(queue, name)(transaction, ReceiveTimeout=0)
        with fails(NOT_FOUND):
            opened(info).Receive(ReceiveTimeout=0)
        transaction.Abort()
        assert body(opened(info).Receive(ReceiveTimeout=0)) == "only"
    else:
        queue.PeekCurrent(ReceiveTimeout=0)
        if "Next" not in name:
            opened(info).Receive(ReceiveTimeout=0)
            queue.Reset()
    begun = time.monotonic()
    with fails(NOT_FOUND):
        getattr(queue, name)(*before, False, True, 0)
    assert time.monotonic() - begun < WAIT_S
