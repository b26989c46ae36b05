"""The sending side of a node: inactive while another node leads, active while this one does."""

import logging
import time
from collections.abc import Callable, Sequence

from typing_extensions import override

from qm.cluster.cluster import Cluster, ClusterListener, Leadership
from qm.cluster.relay import RelayHubEvents, SessionFacts
from qm.edge.outgoing import rows
from qm.edge.outgoing.acks.order_acks import SendersSeen
from qm.edge.outgoing.encrypting import BodyEncryption
from qm.edge.outgoing.leadership import Leading
from qm.edge.outgoing.limits import RESOLVING_NAMED_MAX
from qm.edge.outgoing.link.context import OutgoingContext, OutgoingSettings
from qm.edge.outgoing.link.resolver import Destinations, Resolver, SystemResolver
from qm.edge.outgoing.link.timers import TimerQueue
from qm.edge.outgoing.link_report import LinkReport, link_report
from qm.edge.outgoing.proposal_queue import ProposalQueue
from qm.edge.relay.relay import Relay
from qm.model.queries.people import ReplicatedDirectory
from qm.model.values.effects import Applied
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics

LOGGER = logging.getLogger(__name__)


class OutgoingManager(ClusterListener, RelayHubEvents):
    """Starts and ends the sending side with leadership; a listener of the cluster and its hub."""

    def __init__(
        self,
        cluster: Cluster,
        settings: OutgoingSettings,
        metrics: Metrics,
        *,
        relay: Relay,
        resolver: Resolver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`relay`: the edge's; it receives what peers send back over sessions of this side.

        `clock`: monotonic seconds.
        """
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics
        self._relay = relay
        self._resolver = resolver or SystemResolver()
        self._named_resolver = resolver or SystemResolver(RESOLVING_NAMED_MAX)
        self._clock = clock
        self._lines = LimitedLog(LOGGER, clock)
        self._senders = SendersSeen()
        self._leading: Leading | None = None
        self._timers = TimerQueue(clock)
        self._unlisten: Callable[[], None] | None = None

    def start(self) -> None:
        """Listen from now on; call it in the node's event loop."""
        self._unlisten = self._cluster.listen(self)
        self._cluster.relay_hub.listen(self)
        self.on_leadership(self._cluster.leadership)

    def stop(self) -> None:
        """Send nothing more."""
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        self._end()

    def run_timers(self) -> None:
        """Let every timer fire that is due; for clocks that are moved by hand."""
        self._timers.run()

    # For administrators ----------------------------------------------------------------------

    def report(self, queue_id: int) -> LinkReport | None:
        """Return the volatile half of an outgoing queue; None unless this node is sending it.

        The replicated half is `qm.model.queries.outgoing_queue`; pausing and resuming is
        SetOutgoingAdminState, which takes effect here when it is applied.
        """
        sender = self._leading.queues.get(queue_id) if self._leading is not None else None
        return link_report(sender, self._clock(), self._cluster.now_ms()) if sender else None

    def resend(self, queue_id: int) -> bool:
        """Send the unacknowledged transactional messages of a queue again, without waiting.

        Return whether this node is sending the queue.
        """
        sender = self._leading.queues.get(queue_id) if self._leading is not None else None
        if sender is None:
            return False
        sender.resend_now()
        return True

    # ClusterListener -------------------------------------------------------------------------

    @override
    def on_applied(self, applied: Applied) -> None:
        if applied.incoming_sequences:
            self._senders.note(applied.incoming_sequences)
        if applied.order_ack_ordinals:
            self._senders.reserve(applied.order_ack_ordinals)
        if self._leading is None:
            if self._cluster.leadership.is_here:
                self._begin()  # the queue manager was born while this node led, or is online again
        elif applied.is_manager_changed and not self._is_online():
            self._end()
        else:
            self._leading.on_applied(applied)

    @override
    def on_restored(self, index: int) -> None:
        del index
        if self._leading is not None:
            self._end()
            self._begin()

    @override
    def on_leadership(self, leadership: Leadership) -> None:
        """Start or stop; a new term of the same leader changes nothing."""
        if leadership.is_here and self._leading is None:
            self._begin()
        elif not leadership.is_here:
            self._end()

    # RelayHubEvents --------------------------------------------------------------------------

    @override
    def on_session(self, edge: str, session: SessionFacts, is_open: bool) -> None:
        if self._leading is not None:
            self._leading.outbox.on_session(edge, session, is_open)

    @override
    def on_late_result(
        self, edge: str, session: int, tokens: Sequence[int], is_delivered: bool
    ) -> None:
        if self._leading is not None:
            self._leading.outbox.on_late_result(edge, session, tokens, is_delivered)

    # -----------------------------------------------------------------------------------------

    def _is_online(self) -> bool:
        manager = rows.queue_manager(self._cluster.state)
        return manager is not None and manager.connection_active

    def _begin(self) -> None:
        """Send, unless the queue manager is offline: then it speaks to no other one."""
        manager = rows.queue_manager(self._cluster.state)
        if manager is None or not manager.connection_active:
            return
        proposals = ProposalQueue(self._cluster, self._lines)
        own_guid = manager.identifier
        directory = ReplicatedDirectory(lambda: self._cluster.state)
        context = OutgoingContext(
            cluster=self._cluster,
            own_guid=own_guid,
            settings=self._settings,
            clock=self._clock,
            timers=self._timers,
            proposals=proposals,
            destinations=Destinations(
                self._resolver,
                self._settings.peers,
                self._settings.rules,
                self._named_resolver,
                directory.addresses,
            ),
            encryption=BodyEncryption(directory, self._clock, self._settings.encryption),
            relay=self._relay,
            metrics=self._metrics,
            lines=self._lines,
        )
        self._leading = Leading(context, self._senders)
        self._leading.start()

    def _end(self) -> None:
        if self._leading is not None:
            leading, self._leading = self._leading, None
            leading.stop()
