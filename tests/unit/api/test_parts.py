"""Parts of the API that need no cluster."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from qm.api.convert.acl import changed_descriptor, mask_of, rights_of, shown_acl
from qm.api.convert.definitions import Document, QueueDefinition, read_document, write_document
from qm.api.convert.properties import properties_of
from qm.api.data.credit import CREDIT_MAX, Credit
from qm.api.gate.calls import CALL_ID_KEY, CALL_ID_MAX_CHARS, begin_call, call_id
from qm.api.gate.errors import InvalidArgument, LimitReached
from qm.api.gate.events import EventLog
from qm.api.gate.identity import Principal, Role
from qm.api.propose.control_once import UNNUMBERED, Decider
from qm.api.propose.proposer import COMMANDS_PER_PROPOSAL_MAX, Proposer
from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.clients.control_requests import CONTROL_ID_BYTES
from qm.model.queries import View
from qm.model.state.tables import MemoryState
from qm.model.values.commands import Command, Confirm, Request, Send, SetQueue
from qm.model.values.effects import Outcome
from qm.pb import control_pb2 as pb
from qm.wire.access_mask import QueueAccess
from tests.unit.model.world import packet


def test_credit_gives_out_every_number_once_whatever_is_answered() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        credit, open_numbers, following = Credit(), set[int](), 1
        for _ in range(60):
            if chance.random() < 0.4 and credit.count < CREDIT_MAX - 50:
                following += chance.choice((0, 0, 3))
                count = chance.randint(1, 50)
                credit.grant(following, count)
                open_numbers |= set(range(following, following + count))
                following += count
            first, count = credit.head(20)
            assert (count == 0) == (not open_numbers)
            numbers = [n for n in range(first, first + count) if chance.random() < 0.7]
            assert set(range(first, first + count)) <= open_numbers
            credit.answered(numbers)
            open_numbers -= set(numbers)
            assert credit.count == len(open_numbers), seed


def test_credit_is_bounded() -> None:
    credit = Credit()
    with pytest.raises(LimitReached):
        credit.grant(1, CREDIT_MAX + 1)
    for first, count in ((0, 1), (1, 0), (1 << 64, 1)):
        with pytest.raises(InvalidArgument):
            credit.grant(first, count)


def test_events_are_kept_up_to_a_number_and_followed() -> None:
    async def scenario() -> None:
        log = EventLog(lambda: 42, kept_max=3)
        for k in range(5):
            log.add("control", f"e{k}", "x" * 1_000, details={"a": "b"})
        assert [event.number for event in log.after(0)] == [3, 4, 5]
        assert [event.number for event in log.after(4)] == [5]
        assert log.after(5) == []
        assert len(log.after(4)[0].text) == 500

        followed: list[str] = []

        async def follow() -> None:
            async for event in log.read(4, follow=True):
                followed.append(event.name)

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        log.add("control", "news", "")
        for _ in range(10):
            await asyncio.sleep(0)
        assert followed == ["e4", "news"]
        following.cancel()

    asyncio.run(scenario())


class ScriptedCluster:
    """Answers proposals as configured; others succeed."""

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = list(errors)
        self.proposals: list[int] = []
        self.status = 0
        self.view = View.of(MemoryState())

    async def propose(self, *commands: Command) -> Sequence[Outcome]:
        self.proposals.append(len(commands))
        self.last = commands[-1]
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        return [
            Outcome(self.status, value=getattr(command, "confirmed_upto", None))
            for command in commands
        ]

    async def read_barrier(self) -> int:
        return 1


def scripted(*errors: Exception | None) -> tuple[ScriptedCluster, Any]:
    cluster = ScriptedCluster(*errors)
    return cluster, cluster


def test_one_round_of_the_loop_is_one_proposal() -> None:
    async def scenario() -> None:
        cluster, face = scripted()
        proposer = Proposer(face)
        outcomes = await asyncio.gather(
            *(proposer.once(Confirm("c", k), Confirm("c", k + 100)) for k in range(5))
        )
        assert cluster.proposals == [10]
        assert [[one.value for one in job] for job in outcomes] == [[k, k + 100] for k in range(5)]
        half = [Confirm("c", k) for k in range(COMMANDS_PER_PROPOSAL_MAX // 2 + 1)]
        await asyncio.gather(proposer.once(*half), proposer.once(*half))
        assert cluster.proposals[1:] == [len(half), len(half)]
        await proposer.close()

    asyncio.run(scenario())


def test_sends_travel_apart_so_that_a_full_disk_refuses_them_alone() -> None:
    async def scenario() -> None:
        cluster, face = scripted()
        proposer = Proposer(face)
        send = Send.of(Request("c", 1, 9), [("DIRECT=OS:a\\b", b"x")])
        await asyncio.gather(
            proposer.once(Confirm("c", 1)),
            proposer.once(send, send),
            proposer.once(Confirm("c", 2)),
            proposer.once(send),
        )
        assert cluster.proposals == [3, 2]

    asyncio.run(scenario())


def test_what_is_not_known_is_proposed_again() -> None:
    async def scenario() -> None:
        cluster, face = scripted(Unavailable("no leader"), OutcomeUnknown("lost"))
        (outcome,) = await Proposer(face).repeat(Confirm("c", 7))
        assert (outcome.value, len(cluster.proposals)) == (7, 3)
        cluster, face = scripted(OutcomeUnknown("lost"))
        with pytest.raises(OutcomeUnknown):
            await Proposer(face).once(Confirm("c", 7))

    asyncio.run(scenario())


def begin(who: str, call: str) -> None:
    """Serve a call of that name in this task."""
    begin_call(Principal(who, Role.ADMIN, ()), "/q/SetQueue", lambda: ((CALL_ID_KEY, call),))


def test_a_control_command_is_named_by_caller_call_and_request() -> None:
    async def scenario() -> None:
        cluster, face = scripted()
        decider = Decider(face, Proposer(face))

        async def name_of(who: str, call: str, label: bytes) -> bytes:
            begin(who, call)
            asked = pb.SetQueueRequest(changes={"label": pb.Value(data=label)})
            await decider.once(asked, lambda: SetQueue(UNNUMBERED, 7, {}, ()))
            command = cluster.last
            assert isinstance(command, SetQueue)
            return command.request.control_id

        first = await name_of("ann", "1", b"x")
        assert len(first) == CONTROL_ID_BYTES
        assert await name_of("ann", "1", b"x") == first
        others = [
            await name_of("bob", "1", b"x"),
            await name_of("ann", "2", b"x"),
            await name_of("ann", "1", b"y"),
        ]
        assert len({first, *others}) == 4

    asyncio.run(scenario())


def test_a_call_without_a_usable_name_gets_one_of_its_own() -> None:
    async def scenario() -> None:
        names = []
        for given in ("", "x" * (CALL_ID_MAX_CHARS + 1), "mine"):
            begin("ann", given)
            names.append(call_id())
            assert call_id() == names[-1]
        assert names[2] == "/q/SetQueue mine"
        assert names[0] != names[1]
        assert "/q/SetQueue " not in names

    asyncio.run(scenario())


def test_rights_in_words_are_the_mask_again() -> None:
    for mask in (0, 0x1, 0x3, 0x24, 0x2000F, 0xF003F, 0x3F, 0x10040):
        rights = rights_of(mask, QueueAccess)
        assert mask_of(rights, QueueAccess, "rights") == mask
    assert rights_of(0x3, QueueAccess) == ["receive_message"]
    assert rights_of(0x40, QueueAccess) == ["0x40"]


def test_a_list_without_owner_belongs_to_administrators() -> None:
    given = [pb.Ace(principal="alice", rights=["write_message"])]
    security = changed_descriptor(b"", given, "", QueueAccess)
    shown = shown_acl(security, 3, QueueAccess, {})
    assert (shown.owner_sid, shown.version) == ("S-1-5-32-544", 3)
    again = changed_descriptor(security, given, "bob", QueueAccess)
    assert shown_acl(again, 3, QueueAccess, {}).owner_sid.startswith("S-1-5-21-")


def test_a_document_reads_back_and_says_where_it_is_wrong() -> None:
    document = Document(1, queues=[QueueDefinition(r".\private$\a", {"quota": 7, "label": "x"})])
    assert read_document(write_document(document)) == document
    for text, reason in (
        ("version: 1\nqueue: []", "unknown field `queue`"),
        ("version: 1\nqueues: [{path_name: 7}]", r"queues\[0\].path_name"),
        (": :", "document"),
        ("version: 1\nqueues: [&a {path_name: a}, *a]", "aliases"),
        ("version: 1\nqueues: [{path_name: a}, {path_name: A}]", "twice"),
        ("!!python/object/apply:os.system [ls]", "document"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            read_document(text)


def test_texts_that_protobuf_cannot_carry_are_shown_all_the_same() -> None:
    """A label is any 16-bit units; half a surrogate pair must not make it unreadable."""
    raw = packet(1, properties={"label": "a\ud800z"})
    assert properties_of(raw, 1, 2, with_body=True).label == "a\ufffdz"
    whole = packet(1, properties={"label": "\U0001f600"})
    assert properties_of(whole, 1, 2, with_body=True).label == "\U0001f600"
