"""Elections: timeouts, pre-vote, votes, early campaigns (raft/design.md, Elections).

Methods that may end a campaign return True when this replica has won it.
"""

from enum import IntEnum

import msgspec

from raft.core.quorum import Tally, tally
from raft.core.state import State
from raft.types import NodeId, PeerState, PreVote, PreVoteReply, Role, Vote, VoteReply

STAND_BACK_TIMEOUTS = 2
"""A replica that stands back waits for so many election timeouts more: longer than all others."""


class Verdict(IntEnum):
    """The decision on a pre-vote."""

    DENY = 0
    GRANT = 1
    HOLD = 2
    """The asker reports that the leader died, which this replica has not noticed yet."""


class HeldPreVote(msgspec.Struct, frozen=True, gc=False):
    """An early pre-vote that may still be granted."""

    term: int
    body: PreVote
    until: int
    """The tick at which it is denied."""


class Election:
    """Timers and campaigns of one replica; all changes of role except to leader."""

    __slots__ = (
        "_countdown",
        "_elapsed",
        "_granted",
        "_held",
        "_is_early",
        "_is_needed",
        "_lost",
        "_rounds",
        "_state",
        "_timeout",
        "_votes",
    )

    def __init__(self, state: State) -> None:
        self._state = state
        self._elapsed = 0
        self._timeout = 0
        self._rounds = 0
        """Campaigns that failed since a leader was last heard."""
        self._votes: dict[NodeId, bool] = {}
        self._is_early = False
        self._is_needed = False
        """Another replica asked for votes, and only this one's log is up to date."""
        self._countdown: int | None = None
        """Ticks until the early campaign for which there is evidence."""
        self._lost: dict[NodeId, tuple[PeerState, int]] = {}
        """Peers whose connection is lost: its state, and since which tick."""
        self._held: dict[NodeId, HeldPreVote] = {}
        self._granted: tuple[NodeId, int] | None = None
        """The last pre-vote granted, as (asker, term): its Vote may break the lease."""
        self._restart_timer(self._state.config.election_ticks)

    # Time

    def tick(self, count: int) -> bool:
        """Note that `count` ticks passed while not leading."""
        state = self._state
        self._elapsed += count
        if self._held:
            self._deny_held()
        if self._countdown is not None:
            self._countdown -= count
            if self._countdown <= 0:
                self._countdown = None
                if state.role is Role.FOLLOWER and self._has_evidence():
                    return self._ask(is_early=True)
        if self._elapsed < self._due():
            return False
        if self.may_campaign():
            if state.role is not Role.FOLLOWER:
                self._rounds += 1
            return self._ask(is_early=False)
        self.become_follower(state.term, None)
        return False

    def ticks_until_due(self) -> int:
        """Return the number of ticks after which `tick` will have work."""
        due = self._due() - self._elapsed
        if self._countdown is not None:
            due = min(due, self._countdown)
        for held in self._held.values():
            due = min(due, held.until - self._state.now)
        return max(due, 1)

    def _due(self) -> int:
        """Return after how many ticks without a leader this replica campaigns.

        One that stands back lets the others try first, until one of them has asked in vain for the
        vote of this one, or a campaign of its own shows that none has won.
        """
        state = self._state
        if self._rounds or self._is_needed or not state.stands_back():
            return self._timeout
        return self._timeout + STAND_BACK_TIMEOUTS * state.config.election_ticks

    def _restart_timer(self, base_ticks: int) -> None:
        self._elapsed = 0
        if self._state.members.current.voters == (self._state.node,):
            self._timeout = 1  # there is no other voter to wait for
        else:
            self._timeout = base_ticks + self._state.random(base_ticks)

    def _restart_campaign_timer(self) -> None:
        config = self._state.config
        backoff = config.campaign_ticks << min(self._rounds, 16)
        self._restart_timer(min(backoff, config.election_ticks))

    # Roles

    def become_follower(self, term: int, leader: NodeId | None) -> None:
        """Follow `leader` in `term`; None while no leader is known."""
        state = self._state
        if term > state.term:
            state.term = term
            state.vote = None
        state.role = Role.FOLLOWER
        state.leader = leader
        self._restart_timer(state.config.election_ticks)

    def heard(self, leader: NodeId) -> None:
        """Note that a message of the leader of this term arrived."""
        state = self._state
        was_early = state.role is Role.PRE_CANDIDATE and self._is_early
        if state.leader == leader and state.role is Role.FOLLOWER:
            self._elapsed = 0
        else:
            self.become_follower(state.term, leader)
        self._rounds = 0
        self._is_needed = False
        lost = self._lost.get(leader)
        if lost is None:
            return
        if state.now - lost[1] >= state.config.early_window_ticks:
            # Too late to have waited in a buffer since the connection was lost: it is alive.
            del self._lost[leader]
            self._countdown = None
        elif was_early and self._has_evidence():
            self._countdown = max(self._delay(), 1)

    def may_campaign(self) -> bool:
        """Return whether this replica could lead.

        A removed voter may campaign until its removal is committed: perhaps only its log can bring
        that about (thesis 4.2.2). Its own vote does not count.
        """
        state = self._state
        if not state.is_writable or state.is_installing or state.owes():
            return False
        members = state.members
        if state.node in members.current.voters:
            return True
        return members.index > state.commit and state.node in members.at(state.commit).voters

    def is_in_lease(self, asker: NodeId) -> bool:
        """Return whether a leader other than the asker is believed to be alive (thesis 4.2.3)."""
        state = self._state
        if state.role is Role.LEADER:
            return True
        if state.leader is None or state.leader == asker:
            return False
        return self._elapsed < state.config.election_ticks

    # Campaigns

    def _ask(self, *, is_early: bool) -> bool:
        """Begin with the pre-vote, which disturbs no leader (thesis 9.6)."""
        state = self._state
        state.role = Role.PRE_CANDIDATE
        self._is_early = is_early
        self._votes = {state.node: True}
        if is_early:
            # Keep leader and timer: if the evidence is wrong, nothing has changed.
            state.counters.early_campaigns += 1
        else:
            state.leader = None
            self._restart_campaign_timer()
        if self._tally() is Tally.WON:
            return self.campaign(is_transfer=False)
        body = PreVote(state.log.last_index, state.log.last_term, is_early)
        for voter in state.members.current.voters:
            if voter != state.node:
                state.send(voter, body, state.term + 1)
        return False

    def campaign(self, *, is_transfer: bool) -> bool:
        """Take the next term and ask for votes (Raft 5.2)."""
        state = self._state
        state.term += 1
        state.vote = state.node
        state.role = Role.CANDIDATE
        state.leader = None
        state.counters.campaigns += 1
        self._votes = {state.node: True}
        self._countdown = None
        self._held.clear()
        self._restart_campaign_timer()
        if self._tally() is Tally.WON:
            return True
        body = Vote(state.log.last_index, state.log.last_term, is_transfer)
        for voter in state.members.current.voters:
            if voter != state.node:
                # After the sync: a candidate that crashes and forgets the term must not win it
                # later by votes that were given to the longer log that it lost.
                state.send_synced(voter, body)
        return False

    def _tally(self) -> Tally:
        return tally(self._state.members.current.voters, self._votes)

    def _failed(self) -> None:
        """Give up a campaign for now."""
        state = self._state
        state.role = Role.FOLLOWER
        if not self._is_early or state.leader is None:
            self._rounds += 1
            self._restart_campaign_timer()

    # Early campaigns

    def peer(self, peer: NodeId, link: PeerState) -> bool:
        """Note that this node's own connection to a peer changed."""
        state = self._state
        if link is PeerState.CONNECTED:
            self._lost.pop(peer, None)
            if peer == state.leader:
                self._countdown = None
            return False
        self._lost[peer] = (link, state.now)
        if peer != state.leader or state.role is Role.LEADER:
            return False
        self._judge_held_again()
        if link is PeerState.REFUSED and state.role is Role.FOLLOWER and self._countdown is None:
            delay = self._delay()
            if delay == 0 and self.may_campaign():
                return self._ask(is_early=True)
            self._countdown = delay
        return False

    def _has_evidence(self) -> bool:
        leader = self._state.leader
        if leader is None or not self.may_campaign():
            return False
        lost = self._lost.get(leader)
        return lost is not None and lost[0] is PeerState.REFUSED

    def _delay(self) -> int:
        """Return rank x delay in ticks, so that the survivors' votes do not split.

        The rank is the position of the id among the voters that seem alive, behind all of them for
        one that stands back; the ends of their logs correct it as soon as they are known
        (`pre_vote`).
        """
        state = self._state
        alive = [
            voter
            for voter in state.members.current.voters
            if voter not in self._lost or voter == state.node
        ]
        if state.node not in alive:
            return 0
        rank = len(alive) if state.stands_back() else alive.index(state.node)
        return rank * state.config.early_delay_ticks

    def _judge_held_again(self) -> None:
        for asker, held in list(self._held.items()):
            verdict = self._judge(asker, held.term, held.body)
            if verdict is not Verdict.HOLD:
                del self._held[asker]
                self._answer(asker, held.term, held.body, verdict)

    def _deny_held(self) -> None:
        for asker, held in list(self._held.items()):
            if held.until <= self._state.now:
                del self._held[asker]
                self._answer(asker, held.term, held.body, Verdict.DENY)

    # Messages

    def pre_vote(self, asker: NodeId, term: int, body: PreVote) -> None:
        """Answer a pre-vote for `term`, or hold the answer back."""
        state = self._state
        verdict = self._judge(asker, term, body)
        if verdict is Verdict.HOLD and asker in state.members.current.voters:
            until = state.now + state.config.early_window_ticks
            self._held[asker] = HeldPreVote(term, body, until)
            return
        self._answer(asker, term, body, verdict)

    def _judge(self, asker: NodeId, term: int, body: PreVote) -> Verdict:
        state = self._state
        if term <= state.term or not state.is_named() or state.owes():
            return Verdict.DENY
        if not state.log.is_up_to_date(body.last_index, body.last_term):
            self._is_needed = True  # this log is more up to date than the asker's
            if body.is_early and self._countdown is not None:
                self._countdown = 0
            return Verdict.DENY
        if state.role is Role.PRE_CANDIDATE and body.is_early == self._is_early:
            # Both ask at once: one of them must give way, or both would become candidates.
            return Verdict.DENY if self._outranks(asker, body) else Verdict.GRANT
        if not self.is_in_lease(asker):
            return Verdict.GRANT
        if not body.is_early or state.role is Role.LEADER:
            return Verdict.DENY
        return Verdict.GRANT if state.leader in self._lost else Verdict.HOLD

    def _outranks(self, asker: NodeId, body: PreVote) -> bool:
        """Return whether this replica goes first, given that the asker's log is not behind."""
        log = self._state.log
        is_same = (log.last_index, log.last_term) == (body.last_index, body.last_term)
        return is_same and self._state.node < asker and not self._state.stands_back()

    def _answer(self, asker: NodeId, term: int, body: PreVote, verdict: Verdict) -> None:
        state = self._state
        if verdict is Verdict.GRANT:
            self._granted = (asker, term)
            if state.role is Role.PRE_CANDIDATE:
                self._failed()
            if self._countdown is not None:
                self._countdown = state.config.campaign_ticks  # the asker goes first
            state.send(asker, PreVoteReply(True, body.is_early), term)
            return
        # Use at least the asker's own term, so that it does not drop the answer as stale.
        state.send(asker, PreVoteReply(False, body.is_early), max(state.term, term - 1))

    def pre_vote_reply(self, voter: NodeId, term: int, body: PreVoteReply) -> bool:
        """Count an answer to a pre-vote."""
        state = self._state
        is_mine = state.role is Role.PRE_CANDIDATE and body.is_early == self._is_early
        if not is_mine or (body.granted and term != state.term + 1):
            state.counters.unexpected += 1
            return False
        if body.granted:
            self._votes[voter] = True
        else:
            self._votes.setdefault(voter, False)
        outcome = self._tally()
        if outcome is Tally.WON:
            return self.campaign(is_transfer=False)
        if outcome is Tally.LOST:
            self._failed()
        return False

    def admits(self, candidate: NodeId, term: int, body: Vote) -> bool:
        """Return whether a Vote of a newer term is considered at all (thesis 4.2.3, 3.10)."""
        if body.is_transfer or not self.is_in_lease(candidate):
            return True
        return self._granted == (candidate, term)

    def vote(self, candidate: NodeId, body: Vote) -> None:
        """Answer a Vote of the current term (Raft 5.2, 5.4.1)."""
        state = self._state
        is_free = state.vote == candidate or (state.vote is None and state.leader is None)
        if (
            is_free
            and state.is_writable
            and state.is_named()
            and not state.owes()
            and state.log.is_up_to_date(body.last_index, body.last_term)
        ):
            state.vote = candidate
            state.role = Role.FOLLOWER
            self._restart_timer(state.config.election_ticks)
            state.send_synced(candidate, VoteReply(True))
        else:
            state.send(candidate, VoteReply(False))

    def vote_reply(self, voter: NodeId, body: VoteReply) -> bool:
        """Count a vote."""
        state = self._state
        if state.role is not Role.CANDIDATE:
            state.counters.unexpected += 1
            return False
        self._votes.setdefault(voter, body.granted)
        outcome = self._tally()
        if outcome is Tally.LOST:
            self._is_early = False
            self._failed()
        return outcome is Tally.WON

    def timeout_now(self, leader: NodeId) -> bool:
        """Take over at the leader's request (thesis 3.10)."""
        if self._state.leader != leader or not self.may_campaign():
            self._state.counters.unexpected += 1
            return False
        return self.campaign(is_transfer=True)
