"""Runs the scripts of this folder: each command is followed by what it must print.

    # a comment
    propose a hello
    ----
    ok: entry 2

Commands act on a group of cores (tests.unit.raft.core.group); `settle` runs it until nothing moves,
the others do one thing. `python -m tests.unit.raft.core.scripts --rewrite-scripts` writes the
transcripts again, for review in the diff.
"""

import shlex
from collections.abc import Callable
from pathlib import Path

from raft.core.core import Busy, NotLeader
from raft.core.membership import (
    AddLearner,
    BadChange,
    MemberChange,
    PromoteLearner,
    RemoveMember,
    ReplaceMember,
)
from raft.types import (
    Append,
    AppendReply,
    Body,
    Configuration,
    Entry,
    EntryKind,
    Envelope,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    PeerState,
    PreVote,
    PreVoteReply,
    ReadReply,
    ReadRequest,
    Ready,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from tests.unit.raft.core.group import Group, Member, decode, log_of

SCRIPTS = Path(__file__).parent
SEPARATOR = "----"
TIMEOUT_MAX_TICKS = 400


def short(node: str | None) -> str:
    """Return an id without its incarnation if that is the first."""
    return "nobody" if node is None else node.removesuffix(".1")


def long(name: str) -> str:
    """Return the id of a name."""
    return name if "." in name else f"{name}.1"


def show_configuration(configuration: Configuration) -> str:
    """Return `voters=a,b learners=c retired=d`."""
    parts = [f"voters={','.join(map(short, configuration.voters))}"]
    if configuration.learners:
        parts.append(f"learners={','.join(map(short, configuration.learners))}")
    if configuration.retired:
        parts.append(f"retired={','.join(configuration.retired)}")
    return " ".join(parts)


def show_entry(entry: Entry) -> str:
    """Return `index/term` and what it holds."""
    place = f"{entry.index}/{entry.term}"
    match entry.kind:
        case EntryKind.NOOP:
            return f"{place} no-op"
        case EntryKind.CONFIG:
            return f"{place} {show_configuration(decode(entry))}"
        case EntryKind.DATA:
            return f"{place} {entry.data.decode()!r}"


def show_body(body: Body) -> str:
    """Return a message's body in a line."""
    match body:
        case Append(prev_index, prev_term, commit, entries, context):
            shown = "".join(f" [{show_entry(entry)}]" for entry in entries)
            words = f"after={prev_index}/{prev_term} commit={commit}{_read(context)}{shown}"
        case Heartbeat(commit, context):
            words = f"commit={commit}{_read(context)}"
        case PreVote(last_index, last_term, is_early):
            words = f"last={last_index}/{last_term}{' early' if is_early else ''}"
        case Vote(last_index, last_term, is_transfer):
            words = f"last={last_index}/{last_term}{' transfer' if is_transfer else ''}"
        case InstallSnapshot(meta):
            words = f"at={meta.index}/{meta.term}"
        case ReadRequest(request):
            words = str(request)
        case TimeoutNow():
            words = ""
        case _:
            words = _show_reply(body)
    return f"{type(body).__name__} {words}".rstrip()


def _show_reply(body: Body) -> str:
    match body:
        case AppendReply() if body.is_rejected:
            return f"rejected={body.rejected_index} hint={body.hint_index}/{body.hint_term}"
        case AppendReply():
            return f"match={body.match_index} applied={body.applied_index}"
        case HeartbeatReply(context, applied):
            return f"applied={applied}{_read(context)}"
        case PreVoteReply() | VoteReply():
            return "granted" if body.granted else "denied"
        case SnapshotReply(index, is_installed):
            return f"{'installed' if is_installed else 'refused'}={index}"
        case ReadReply(request, index):
            return f"{request} index={index}"
        case _:
            raise AssertionError(body)


def _read(context: int) -> str:
    return f" read={context}" if context else ""


def show(envelope: Envelope) -> str:
    """Return a message in a line."""
    route = f"{short(envelope.sender)}->{short(envelope.to)}"
    return f"{route} term={envelope.term} {show_body(envelope.body)}"


def show_ready(ready: Ready) -> list[str]:
    """Return a Ready in lines, in the order in which it is done."""
    lines: list[str] = []
    soft, hard = ready.soft_state, ready.hard_state
    if soft is not None:
        lines.append(f"role={soft.role.name} term={soft.term} leader={short(soft.leader)}")
    if ready.snapshot is not None:
        lines.append(f"restart behind {ready.snapshot.index}/{ready.snapshot.term}")
    if hard is not None:
        lines.append(f"write term={hard.term} vote={short(hard.vote)} commit={hard.commit}")
    lines += [f"write {show_entry(entry)}" for entry in ready.entries]
    lines += [f"send {show(envelope)}" for envelope in ready.messages]
    if ready.must_sync:
        lines.append("sync")
    lines += [f"then send {show(envelope)}" for envelope in ready.messages_after_sync]
    lines += [f"read {state.request} at {state.index}" for state in ready.reads]
    lines += [f"snapshot wanted by {short(node)}" for node in ready.snapshots_wanted]
    return lines


class Interaction:
    """The state of one script."""

    def __init__(self) -> None:
        self.group = Group(())
        self.verbs: dict[str, Callable[[list[str]], list[str]]] = {
            name.removeprefix("do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("do_")
        }

    def run(self, line: str) -> list[str]:
        """Run one command; return what it prints."""
        verb, *words = shlex.split(line)
        if verb not in self.verbs:
            raise ValueError(f"no verb {verb!r} in {line!r}")
        try:
            return self.verbs[verb](words) or ["ok"]
        except (Busy, NotLeader, BadChange) as error:
            return [f"{type(error).__name__}: {error}"]

    def _member(self, name: str) -> Member:
        return self.group.members[long(name)]

    # Making

    def do_group(self, words: list[str]) -> list[str]:
        """Group of voters=a,b,c [learners=d] [limit=number ...]."""
        options = dict(word.split("=") for word in words)
        voters = options.pop("voters").split(",")
        learners = [name for name in options.pop("learners", "").split(",") if name]
        self.group = Group(voters, learners, **{name: int(n) for name, n in options.items()})
        return []

    def do_member(self, words: list[str]) -> list[str]:
        """Member NAME [terms=1,1,2]: one more, or instead of the one so far, with this log."""
        name, *rest = words
        options = dict(word.split("=") for word in rest)
        terms = [int(term) for term in options.get("terms", "").split(",") if term]
        old = self.group.members.get(long(name))
        member = Member(
            long(name),
            old.base if old else Configuration(()),
            entries=log_of(*terms),
            hard_state=HardState(max(terms, default=0)),
            config=old.options if old else None,
        )
        self.group.add(member)
        return []

    # Inputs

    def do_tick(self, words: list[str]) -> list[str]:
        """Tick COUNT NAME...: time passes, no messages are sent."""
        for _ in range(int(words[0])):
            for name in words[1:]:
                self._member(name).core.tick()
        return []

    def do_wait(self, words: list[str]) -> list[str]:
        """Wait COUNT: time passes for all, who do everything; prints roles and snapshots wanted."""
        lines: list[str] = []
        for tick in range(int(words[0])):
            for member in self.group.members.values():
                member.core.tick()
            for line in self.do_settle([]):
                if "role=" in line or "wanted" in line:
                    lines.append(f"{tick + 1} {line}")
        return lines

    def do_timeout(self, words: list[str]) -> list[str]:
        """Timeout NAME: time passes until it does something of itself."""
        core = self._member(words[0]).core
        role, campaigns = core.role, core.counters.campaigns
        for ticks in range(1, TIMEOUT_MAX_TICKS):
            core.tick()
            if core.role is not role or core.counters.campaigns != campaigns:
                return [f"{words[0]} is {core.role.name} after {ticks} ticks"]
        return ["nothing happens"]

    def do_propose(self, words: list[str]) -> list[str]:
        """Propose NAME TEXT."""
        return [f"entry {self._member(words[0]).core.propose(words[1].encode())}"]

    def do_read(self, words: list[str]) -> list[str]:
        """Read NAME NUMBER."""
        self._member(words[0]).core.read(int(words[1]))
        return []

    def do_change(self, words: list[str]) -> list[str]:
        """Change NAME add|promote|remove|replace NODE [NODE]."""
        name, what, *nodes = words
        kinds: dict[str, Callable[..., MemberChange]] = {
            "add": AddLearner,
            "promote": PromoteLearner,
            "remove": RemoveMember,
            "replace": ReplaceMember,
        }
        return [f"entry {self._member(name).core.change_members(kinds[what](*map(long, nodes)))}"]

    def do_transfer(self, words: list[str]) -> list[str]:
        """Transfer NAME TO."""
        self._member(words[0]).core.transfer(long(words[1]))
        return []

    def do_resign(self, words: list[str]) -> list[str]:
        """Resign NAME."""
        self._member(words[0]).core.resign()
        return []

    def do_peer(self, words: list[str]) -> list[str]:
        """Peer NAME OTHER CONNECTED|LOST|REFUSED: what its own connection says."""
        self._member(words[0]).core.peer(long(words[1]), PeerState[words[2]])
        return []

    # Doing

    def do_ready(self, words: list[str]) -> list[str]:
        """Ready NAME: one Ready, printed and done; the sync only without `slow-disk`."""
        member = self._member(words[0])
        if not member.core.has_ready():
            return ["nothing"]
        lines = show_ready(member.ready())
        self.group.wire.extend(member.take_outbox())
        return lines

    def do_slow_disk(self, words: list[str]) -> list[str]:
        """Slow_disk NAME: from now on syncs end by the verb `sync`."""
        self._member(words[0]).auto_sync = False
        return []

    def do_sync(self, words: list[str]) -> list[str]:
        """Sync NAME: what it has written is durable."""
        member = self._member(words[0])
        member.sync()
        sent = member.take_outbox()
        self.group.wire.extend(sent)
        return [f"send {show(envelope)}" for envelope in sent]

    def do_deliver(self, words: list[str]) -> list[str]:
        """Deliver NAME [from=NAME] [kind=Append]: what waits for it on the wire."""
        lines = []
        for envelope in self._pick(words):
            self.group.deliver(envelope)
            lines.append(show(envelope))
        return lines or ["nothing waits"]

    def do_drop(self, words: list[str]) -> list[str]:
        """Drop NAME [from=NAME] [kind=Append]: lose what waits for it on the wire."""
        return [f"lost {show(envelope)}" for envelope in self._pick(words)] or ["nothing waits"]

    def _pick(self, words: list[str]) -> list[Envelope]:
        options = dict(word.split("=") for word in words[1:])
        picked = [
            envelope
            for envelope in self.group.wire
            if envelope.to == long(words[0])
            and options.get("from", short(envelope.sender)) == short(envelope.sender)
            and options.get("kind", type(envelope.body).__name__) == type(envelope.body).__name__
        ]
        self.group.wire = [envelope for envelope in self.group.wire if envelope not in picked]
        return picked

    def do_settle(self, words: list[str]) -> list[str]:
        """Settle [quiet]: everybody does everything until nothing moves."""
        lines: list[str] = []
        for _ in range(100):
            for node, member in self.group.members.items():
                while member.core.has_ready():
                    lines += [f"{short(node)}: {line}" for line in show_ready(member.ready())]
                self.group.wire.extend(member.take_outbox())
            if not self.group.wire:
                return ["ok"] if "quiet" in words else lines or ["nothing moves"]
            wire, self.group.wire = self.group.wire, []
            for envelope in wire:
                is_cut = (envelope.sender, envelope.to) in self.group.cuts
                if is_cut:
                    lines.append(f"lost {show(envelope)}")
                self.group.deliver(envelope)
        raise AssertionError("the group does not come to rest")

    def do_elect(self, words: list[str]) -> list[str]:
        """Elect NAME: without a transcript."""
        core = self.group.elect(words[0])
        return [f"{words[0]} leads term {core.term}"]

    # Faults

    def do_cut(self, words: list[str]) -> list[str]:
        """Cut A B: nothing passes from A to B, nor back."""
        one, other = map(long, words)
        self.group.cuts |= {(one, other), (other, one)}
        return []

    def do_isolate(self, words: list[str]) -> list[str]:
        """Isolate NAME."""
        self.group.isolate(words[0])
        return []

    def do_heal(self, words: list[str]) -> list[str]:
        """Heal: every cut."""
        self.group.heal()
        return []

    def do_restart(self, words: list[str]) -> list[str]:
        """Restart NAME: power is lost, what was synced is there."""
        member = self._member(words[0])
        member.restart()
        return self.do_status(words)

    def do_compact(self, words: list[str]) -> list[str]:
        """Compact NAME INDEX."""
        self._member(words[0]).compact(int(words[1]))
        return []

    def do_snapshot(self, words: list[str]) -> list[str]:
        """Snapshot FROM TO [broken]: what the replicas do: offer, send, install."""
        leader, follower = self._member(words[0]), self._member(words[1])
        meta = leader.snapshot_meta()
        leader.core.offer_snapshot(follower.node, meta)
        if "broken" in words:
            leader.core.snapshot_done(follower.node, False)
            return [f"broken at {meta.index}"]
        if not follower.core.begin_install(meta):
            return ["not wanted"]
        leader.core.snapshot_done(follower.node, True)
        follower.core.end_install(meta)
        return [f"installed {meta.index}/{meta.term} {show_configuration(meta.configuration)}"]

    # Looking

    def do_status(self, words: list[str]) -> list[str]:
        """Status [NAME ...]."""
        lines = []
        for name in words or [short(node) for node in self.group.members]:
            member, core = self._member(name), self._member(name).core
            lines.append(
                f"{name}: {core.role.name} term={core.term} leader={short(core.leader)} "
                f"last={core.last_index} durable={core.durable_index} commit={core.commit} "
                f"applied={member.applied}"
            )
        return lines

    def do_followers(self, words: list[str]) -> list[str]:
        """Followers NAME: as the leader sees them."""
        return [
            f"{short(f.node)}: {f.state.name} match={f.match}"
            for f in self._member(words[0]).core.followers()
        ]

    def do_log(self, words: list[str]) -> list[str]:
        """Log NAME: its entries."""
        member = self._member(words[0])
        index, end = member.log.first_index(), member.core.last_index + 1
        lines: list[str] = []
        while index < end:
            lines += map(show_entry, member.core.entries(index, end, 1 << 30))
            index = member.log.first_index() + len(lines)
        return lines

    def do_members(self, words: list[str]) -> list[str]:
        """Members NAME: the configuration in force."""
        return [show_configuration(self._member(words[0]).core.configuration)]


def rewritten(text: str) -> str:
    """Return a script with the transcripts that its commands print now."""
    interaction = Interaction()
    result: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.startswith("#"):
            result.append(line)
            continue
        assert next(lines, None) == SEPARATOR, f"no separator behind {line!r}"
        for old in lines:
            if not old.strip():
                break
        result += [line, SEPARATOR, *interaction.run(line), ""]
    while result and not result[-1]:
        result.pop()
    return "\n".join(result) + "\n"


def scripts() -> list[Path]:
    """Return the scripts of this folder."""
    return sorted(SCRIPTS.glob("*.txt"))
