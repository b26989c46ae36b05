"""Metrics of an edge, at no cost per message, and its rate-limited log lines."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from qm.edge.batches import AckItem, Batch, ack_verdicts
from qm.model.values.columns import IntArray
from qm.model.values.commands import Facts, SignatureFact, TransferVerdict
from qm.model.values.effects import Outcome
from qm.names.guid import guid_text
from qm.observe.logs import LimitedLog
from qm.observe.metrics import Metrics
from qm.session import Blame, Closed, CloseReason, Role
from qm.wire.message_class import MessageClass

_LOGGER: Final = logging.getLogger(__name__)
_REFUSAL: Final = 0x8000
"""Bit of a MessageClass [MS-MQMQ] 2.2.18.1.6: a negative acknowledgment."""
_VERDICTS: Final = {int(verdict): verdict.name.lower() for verdict in TransferVerdict} | {
    int(refusal): refusal.name.lower() for refusal in MessageClass if refusal & _REFUSAL
}
_NOT_TAKEN: Final = frozenset({TransferVerdict.OUT_OF_ORDER, TransferVerdict.ELSEWHERE})
_INSECURE: Final = frozenset(
    {
        MessageClass.NACK_BAD_SIGNATURE,
        MessageClass.NACK_BAD_ENCRYPTION,
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    }
)
_OTHER: Final = "other"
_ACKNOWLEDGEMENT: Final = "acknowledgement"
_ACKNOWLEDGEMENTS: Final = {
    int(TransferVerdict.ACCEPTED): _ACKNOWLEDGEMENT,
    int(TransferVerdict.IGNORED): f"{_ACKNOWLEDGEMENT}_ignored",
    int(TransferVerdict.NEVER_SENT): f"{_ACKNOWLEDGEMENT}_never_sent",
    int(TransferVerdict.ELSEWHERE): f"{_ACKNOWLEDGEMENT}_elsewhere",
}


class EdgeMetrics:
    """Metrics and log lines of one edge."""

    def __init__(self, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._log = LimitedLog(_LOGGER, loop.time)
        self._sessions = metrics.gauge("quorate_sessions").labels(Role.ACCEPTOR.value)
        self._closed = metrics.counter("quorate_sessions_closed_total")
        self._connections = metrics.gauge("quorate_connections")
        self._refused = metrics.counter("quorate_connections_refused_total")
        self._arrived = metrics.counter("quorate_messages_arrived_total")
        self._accepted = self._arrived.labels(_VERDICTS[TransferVerdict.ACCEPTED])
        self._bytes_arrived = metrics.counter("quorate_bytes_arrived_total")
        self._bytes_sent = metrics.counter("quorate_bytes_sent_total")
        self._batches = metrics.counter("quorate_edge_batches_total")
        self._batches_sent = self._batches.labels("sent")
        self._seconds = metrics.histogram("quorate_acknowledgement_seconds")
        self._streams_ended = metrics.counter("quorate_relay_streams_ended_total")
        self._holds = metrics.counter("quorate_edge_reading_held_total")
        self._late = metrics.counter("quorate_late_packets_total")
        self._pings = metrics.counter("quorate_pings_total")
        self._signatures = metrics.counter("quorate_signatures_total")
        self._decrypted = metrics.counter("quorate_encrypted_bodies_total")
        self._examination = metrics.counter("quorate_examination_seconds_total")
        self._rationed = metrics.counter("quorate_examinations_rationed_total")
        self.on_insecure: Callable[[str, int, Facts], None] | None = None
        """Called with class, number and a sender of messages that were refused for want of a right
        signature or encryption.
        """

    # Connections and sessions --------------------------------------------------------------

    def connected_peer(self, change: int) -> None:
        """A TCP connection was accepted (+1), or is gone (-1)."""
        self._connections.inc(change)

    def refused_peer(self, reason: str, address: str) -> None:
        """A TCP connection was closed at once."""
        self._refused.labels(reason).inc()
        self._log.warning(
            f"refused:{reason}",
            "refused a connection: see the limits of [msmq] in the configuration",
            reason=reason,
            peer=address,
        )

    def opened(self) -> None:
        """A handshake is complete."""
        self._sessions.inc()

    def closed(self, event: Closed, address: str, *, was_open: bool) -> None:
        """A session has ended, perhaps before it was open."""
        if was_open:
            self._sessions.dec()
        reason = event.reason.value
        self._closed.labels(reason).inc()
        if event.blame is Blame.NOBODY or event.reason is CloseReason.STOPPED:
            return
        self._log.warning(
            f"closed:{reason}",
            "closed an MSMQ session",
            reason=reason,
            blame=event.blame.value,
            detail=event.detail,
            peer=address,
        )

    def arrived(self, size_bytes: int) -> None:
        """Bytes were read."""
        self._bytes_arrived.inc(size_bytes)

    def sent(self, size_bytes: int) -> None:
        """Bytes were written."""
        self._bytes_sent.inc(size_bytes)

    # The relay -----------------------------------------------------------------------------

    def batch_sent(self) -> None:
        """A batch was sent to the leader, for the first time or again."""
        self._batches_sent.inc()

    def answered(self, seconds: float, batch: Batch, outcome: Outcome) -> None:
        """A batch is applied, so many seconds after its first message arrived."""
        self._seconds.observe(seconds)
        verdicts = outcome.verdicts
        ack_items = batch.ack_items
        if ack_items:
            self._acknowledged(ack_items, verdicts)
        elif verdicts is None:
            return  # none of it was stored: its sessions end and report why
        elif not any(verdicts):
            self._accepted.inc(len(verdicts))
        else:
            self._count(batch, verdicts)

    def _acknowledged(self, ack_items: Sequence[AckItem], verdicts: IntArray | None) -> None:
        """Order and final acks took effect, or did not."""
        if not verdicts or not any(verdicts):
            self._arrived.labels(_ACKNOWLEDGEMENT).inc(len(ack_items))
            return
        for item, verdict in zip(ack_items, ack_verdicts(ack_items, verdicts), strict=True):
            self._arrived.labels(_ACKNOWLEDGEMENTS.get(verdict, _OTHER)).inc()
            if verdict == TransferVerdict.NEVER_SENT:
                self._log.warning(
                    "never_sent",
                    "a peer acknowledged what was never sent",
                    acknowledgement=item.text,
                    peer=item.intake.facts.plain.peer_address,
                    queue_manager=guid_text(item.intake.facts.plain.peer_queue_manager),
                )

    def _count(self, batch: Batch, verdicts: IntArray) -> None:
        for verdict, count in Counter(verdicts).items():
            name = _VERDICTS.get(verdict, _OTHER)
            self._arrived.labels(name).inc(count)
            if verdict & _REFUSAL or verdict in _NOT_TAKEN:
                facts = batch.intake_at(verdicts.index(verdict)).facts.plain
                self._log.warning(
                    f"not_taken:{name}",
                    "messages of a peer were not taken",
                    reason=name,
                    count=count,
                    peer=facts.peer_address,
                    queue_manager=guid_text(facts.peer_queue_manager),
                )
                if verdict in _INSECURE and self.on_insecure is not None:
                    self.on_insecure(name, count, facts)

    def holds(self, held_bytes: int) -> None:
        """Reading from peers stops for a while."""
        self._holds.inc()
        self._log.warning(
            "holds",
            "stopped reading from MSMQ peers until the leader catches up",
            held_bytes=held_bytes,
        )

    def connected(self, leader: str, term: int) -> None:
        """A relay stream is open."""
        _LOGGER.info("relays to a leader", extra={"fields": {"leader": leader, "term": term}})

    def disconnected(self, reason: str, unanswered: int) -> None:
        """A relay stream is over, and so many batches are sent again on the next one."""
        self._streams_ended.labels("new_term" if reason == NEW_TERM else "lost").inc()
        self._batches.labels("unanswered").inc(unanswered)
        self._log.warning(
            "stream", "a relay stream ended", detail=reason, unanswered_batches=unanswered
        )

    def late(self, count: int, *, is_delivered: bool) -> None:
        """Late packets of the leader were delivered, or were not."""
        self._late.labels("delivered" if is_delivered else "undelivered").inc(count)

    def not_offered(self, detail: str) -> None:
        """The leader sent late packets that no session can send."""
        self._log.warning("not_offered", "late packets cannot be sent", detail=detail)

    # Signatures and ciphers ----------------------------------------------------------------

    def examined(self, seconds: float) -> None:
        """The event loop spent so long on a message."""
        self._examination.inc(seconds)

    def verified(self, facts: Facts, address: str) -> None:
        """A message was examined."""
        if facts.signature is not SignatureFact.ABSENT:
            self._signatures.labels(facts.signature.name.lower()).inc()
        if facts.was_encrypted or facts.decryption_failed:
            self._decrypted.labels("failed" if facts.decryption_failed else "decrypted").inc()
        if facts.decryption_failed:
            self._log.warning(
                "undecrypted",
                "could not decrypt a message: is the key of this queue manager that the sender has"
                " a present one (`qm manager keys show`)?",
                peer=address,
            )
        elif facts.signature is SignatureFact.INVALID:
            self._log.warning(
                "bad_signature",
                "a signature or its certificate is not right: is the certificate registered for"
                " the sender's SID (`qm certificate list`)?",
                peer=address,
            )

    def rationed(self, address: str) -> None:
        """A peer waits, because too many of its messages failed or brought keys of their own."""
        self._rationed.inc()
        self._log.warning(
            "rationed",
            "a peer's messages wait: too many signatures or session keys of it were bad or new",
            peer=address,
        )

    # The endpoint --------------------------------------------------------------------------

    def ping(self, result: str, address: str = "") -> None:
        """A datagram arrived; `address` is given if it is not answered normally."""
        self._pings.labels(result).inc()
        if address:
            self._log.warning(
                f"ping:{result}", "did not answer a ping", reason=result, peer=address
            )

    def serving(self, is_serving: bool) -> None:
        """The listeners were opened, or closed because there is no leader."""
        _LOGGER.info("accepts MSMQ sessions" if is_serving else "accepts no MSMQ sessions")

    def not_listening(self, error: OSError) -> None:
        """An address could not be listened on again."""
        self._log.warning(
            "listen", "cannot listen for MSMQ; trying again", detail=error.strerror or str(error)
        )


NEW_TERM: Final = "a new term"
"""Why a stream ends when leadership has moved."""
