"""Carries out what an `OutgoingLink` decides: resolves names, joins connections.

Each user of connections with a link of its own has one: the sender of one queue, the
acknowledgements of one peer.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from qm.edge.outgoing.link.connections import Connections
from qm.edge.outgoing.link.context import OutgoingContext
from qm.edge.outgoing.link.resolver import Unresolved
from qm.edge.outgoing.link.timers import TimerOwner
from qm.edge.outgoing.link.user import SharedConnection, User
from qm.session import Closed, ConnectionStatus, NextHop, OutgoingLink
from qm.session.link import Connect, Resolve, SendPing
from qm.wire.codes import ErrorCode


class LinkOwner(User, TimerOwner, Protocol):
    """A user of connections that has a link of its own."""

    @property
    def has_backlog(self) -> bool:
        """Whether it has something to send, so that the link is retried."""

    async def next_hops(self) -> Sequence[NextHop]:
        """Return where its peer may be, best first. Raises Unresolved."""

    def on_unresolved(self, error: Unresolved) -> None:
        """No next hop was found; the link is told afterwards."""

    def go_on(self) -> None:
        """Do the next step: the link's state has changed."""


class LinkDriver:
    """Carries out the actions of one link and reports the results to it.

    The owner forwards each call of its connection to the method of the same name here.
    """

    def __init__(
        self, context: OutgoingContext, connections: Connections, owner: LinkOwner
    ) -> None:
        self.link = OutgoingLink(context.settings.session)
        self.connection: SharedConnection | None = None
        """The connection in use, from EstablishConnection to `Closed`."""
        self._context = context
        self._connections = connections
        self._owner = owner
        self._resolving: asyncio.Task[None] | None = None

    @property
    def is_resolving(self) -> bool:
        """Whether next hops are being resolved."""
        return self._resolving is not None

    def act(self) -> None:
        """Carry out the link's actions."""
        while (action := self.link.next_action()) is not None:
            match action:
                case Resolve():
                    self._resolving = asyncio.get_running_loop().create_task(self._resolve())
                case Connect():
                    self._connections.acquire(action.hop, self._owner)
                case SendPing():
                    raise AssertionError("links here do not ping: later Windows does not answer")

    def stop(self) -> None:
        """Leave the connection and never call the owner again."""
        self._context.timers.forget(self._owner)
        if self._resolving is not None:
            self._resolving.cancel()
        if self.connection is not None:
            self.connection.leave(self._owner)
            self.connection = None

    def handle_timer(self, now: float) -> None:
        """Let the retry timer fire if it is due."""
        self.link.handle_timer(now, has_backlog=self._owner.has_backlog)

    def on_connected(self, connection: SharedConnection) -> None:
        """Take the connection on which EstablishConnection has been sent."""
        self.connection = connection
        self.link.connected(self._context.utc_s())

    def on_connect_failed(self, status: ConnectionStatus) -> None:
        """Tell the link that there is no transport connection."""
        context = self._context
        self.link.connect_failed(
            status,
            ErrorCode.MQ_ERROR,
            context.clock(),
            context.utc_s(),
            has_backlog=self._owner.has_backlog,
        )

    def on_establish_received(self) -> None:
        """Tell the link that the peer's answer came."""
        self.link.establish_received(self._context.utc_s())

    def on_established(self) -> None:
        """Tell the link that the session is open."""
        self.link.established(self._context.utc_s())

    def on_closed(self, closed: Closed) -> None:
        """Leave the connection and tell the link why it closed."""
        self.connection = None
        context = self._context
        self.link.closing()
        self.link.closed(
            closed.reason, context.clock(), context.utc_s(), has_backlog=self._owner.has_backlog
        )

    async def _resolve(self) -> None:
        context = self._context
        try:
            hops = await self._owner.next_hops()
        except Unresolved as error:
            self._owner.on_unresolved(error)
            self.link.resolve_failed(
                error.status,
                ErrorCode.MQ_ERROR,
                context.clock(),
                context.utc_s(),
                has_backlog=self._owner.has_backlog,
            )
        else:
            self.link.resolved(hops)
        self._resolving = None
        self._owner.go_on()
