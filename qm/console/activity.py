"""Pages of what goes on: outgoing queues, clients, transactions, certificates, settings, events."""

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from qm.client.values import python_value, value_of
from qm.console.forms import form_of
from qm.console.page_group import (
    PAGE_ITEMS,
    Cell,
    PageGroup,
    cells_of,
    instant,
    instant_ms,
    number,
    see,
)
from qm.pb import control_pb2 as pb
from qm.pb import data_pb2

EVENTS_SHOWN_MAX: Final = 500


class ActivityPages(PageGroup):
    """Handlers of the other pages."""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        return [
            web.get("/outgoing", self._outgoing),
            web.get("/outgoing/{queue:[0-9]+}", self._link),
            web.post("/outgoing/{queue:[0-9]+}/{verb:pause|resume|resend}", self._steer),
            web.get("/clients", self._clients),
            web.post("/clients/close", self._close_client),
            web.get("/opens", self._opens),
            web.get("/transactions", self._transactions),
            web.get("/transactions/{transaction:[0-9a-f]{32}}", self._operations),
            web.post("/transactions/resolve", self._resolve),
            web.get("/certificates", self._certificates),
            web.get("/settings", self._settings),
            web.post("/settings", self._set),
            web.get("/events", self._events),
        ]

    def _table(
        self,
        request: web.Request,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell | str | int]],
        *,
        more: str = "",
        note: str = "",
    ) -> web.Response:
        return self.render(
            request,
            "table.html.j2",
            title=title,
            columns=columns,
            rows=cells_of(rows),
            more=more,
            note=note,
        )

    # Outgoing queues

    async def _outgoing(self, request: web.Request) -> web.Response:
        wanted = pb.ListOutgoingRequest(
            page_size=PAGE_ITEMS, page_token=request.query.get("after", "")
        )
        reply = await self.call(request, lambda s: s.outgoing.ListOutgoing, wanted)
        return self.render(
            request,
            "outgoing.html.j2",
            queues=[(queue, pb.OutgoingState.Name(queue.state).lower()) for queue in reply.queues],
            after=reply.page_token,
        )

    async def _link(self, request: web.Request) -> web.Response:
        wanted = pb.GetOutgoingRequest(queue=self.queue_name(request))
        found = await self.call(request, lambda s: s.outgoing.GetOutgoing, wanted)
        rows = [
            ("Messages", f"{found.message_count} ({found.total_bytes} bytes)"),
            ("State", pb.OutgoingState.Name(found.state).lower()),
            ("Sent and not acknowledged", found.unacked_count),
            ("Acknowledged and not received", found.unread_count),
            ("Next address", ", ".join(found.next_hops)),
            ("Last error", found.last_error),
            ("Sent again", f"{found.resend_count} times, next {instant_ms(found.next_resend_ms)}"),
            ("Last order acknowledgement", instant(found.last_ack_time_s)),
            ("Next in sequence", _sequence(found.next)),
            ("Last acknowledged", _sequence(found.last_acked)),
            (
                "First and last not acknowledged",
                f"{_sequence(found.first_unacked)} - {_sequence(found.last_unacked)}",
            ),
            *[("Connection", text) for text in found.connection_history],
        ]
        messages = Cell("its messages", f"/queues/{found.queue_id}")
        return self._table(
            request, found.format_name, ("What", "Now"), [*rows, ("Messages here", messages)]
        )

    async def _steer(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"].capitalize()
        wanted = pb.GetOutgoingRequest(queue=self.queue_name(request))
        await self.call(request, lambda s: getattr(s.outgoing, verb), wanted)
        return see("/outgoing")

    # Clients and transactions

    async def _clients(self, request: web.Request) -> web.Response:
        wanted = pb.ListClientsRequest(
            page_size=PAGE_ITEMS, page_token=request.query.get("after", "")
        )
        reply = await self.call(request, lambda s: s.clients.ListClients, wanted)
        return self.render(
            request, "clients.html.j2", clients=reply.clients, after=reply.page_token
        )

    async def _close_client(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        wanted = pb.CloseClientRequest(client_id=str(form.get("client_id", "")))
        await self.call(request, lambda s: s.clients.CloseClient, wanted)
        return see("/clients")

    async def _opens(self, request: web.Request) -> web.Response:
        """Open queues: of all clients, of one, or of one queue."""
        asked = request.query
        wanted = pb.ListOpensRequest(
            page_size=PAGE_ITEMS,
            page_token=asked.get("after", ""),
            queue_id=number(asked.get("queue", "0")) & 0xFFFF_FFFF,
            client_id=asked.get("client", ""),
        )
        reply = await self.call(request, lambda s: s.clients.ListOpens, wanted)
        rows = [
            (
                Cell(one.format_name, f"/queues/{one.queue_id}"),
                data_pb2.QueueAccess.Name(one.access).removesuffix("_ACCESS").lower(),
                "alone" if one.share_mode == data_pb2.DENY_RECEIVE else "shared",
                one.client_id,
            )
            for one in reply.opens
        ]
        return self._table(
            request,
            "Open queues",
            ("Queue", "For", "Reading", "Client"),
            rows,
            more=_more("/opens", reply.page_token),
        )

    async def _transactions(self, request: web.Request) -> web.Response:
        wanted = pb.ListTransactionsRequest(
            page_size=PAGE_ITEMS, page_token=request.query.get("after", "")
        )
        reply = await self.call(request, lambda s: s.clients.ListTransactions, wanted)
        rows = [(one, pb.TransactionState.Name(one.state).lower()) for one in reply.transactions]
        return self.render(
            request, "transactions.html.j2", transactions=rows, after=reply.page_token
        )

    async def _operations(self, request: web.Request) -> web.Response:
        transaction = request.match_info["transaction"]
        wanted = pb.ListOperationsRequest(
            identifier=bytes.fromhex(transaction),
            page_size=PAGE_ITEMS,
            page_token=request.query.get("after", ""),
        )
        reply = await self.call(request, lambda s: s.clients.ListOperations, wanted)
        rows = [
            (
                one.number,
                pb.OperationType.Name(one.type).lower(),
                Cell(str(one.queue_id), f"/queues/{one.queue_id}"),
                Cell(str(one.lookup_identifier), f"/queues/{one.queue_id}/{one.lookup_identifier}"),
            )
            for one in reply.operations
        ]
        return self._table(
            request,
            f"Transaction {transaction}",
            ("Number", "What", "Queue", "Message"),
            rows,
            more=_more(f"/transactions/{transaction}", reply.page_token),
        )

    async def _resolve(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        wanted = pb.ResolveTransactionRequest(
            identifier=bytes.fromhex(str(form.get("identifier", ""))),
            commit=form.get("outcome") == "commit",
        )
        await self.call(request, lambda s: s.clients.ResolveTransaction, wanted)
        return see("/transactions")

    # Rights, certificates, settings, events

    async def _certificates(self, request: web.Request) -> web.Response:
        """Certificates that a person signs messages with."""
        who = request.query.get("who", "")
        rows: list[tuple[Cell | str | int, ...]] = []
        if who:
            is_sid = who.upper().startswith("S-1-")
            person = pb.Person(sid=who) if is_sid else pb.Person(principal=who)
            wanted = pb.ListCertificatesRequest(person=person)
            reply = await self.call(request, lambda s: s.certificates.List, wanted)
            rows = [_certificate(one) for one in reply.certificates]
        return self.render(
            request,
            "certificates.html.j2",
            who=who,
            columns=_CERTIFICATE_COLUMNS,
            rows=cells_of(rows),
        )

    async def _settings(self, request: web.Request) -> web.Response:
        found = await self.call(
            request, lambda s: s.queues.GetQueueManager, pb.GetQueueManagerRequest()
        )
        values = {name: python_value(found.attributes[name]) for name in found.attributes}
        return self.render(
            request,
            "settings.html.j2",
            manager=found,
            values=values,
            settable=[name for name in sorted(found.settable) if _is_simple(values.get(name))],
        )

    async def _set(self, request: web.Request) -> web.Response:
        """Change one setting of the queue manager."""
        form = await form_of(request)
        name, text = form.get("name", ""), form.get("value", "")
        found = await self.call(
            request, lambda s: s.queues.GetQueueManager, pb.GetQueueManagerRequest()
        )
        if name not in found.settable or name not in found.attributes:
            raise web.HTTPBadRequest(reason="there is no such setting that can be changed")
        before = python_value(found.attributes[name])
        if isinstance(before, bool):
            value: Any = text == "on"
        else:
            value = number(text) if isinstance(before, int) else text
        wanted = pb.SetQueueManagerRequest(
            changes={name: value_of(value)}, if_version=found.version
        )
        await self.call(request, lambda s: s.queues.SetQueueManager, wanted)
        return see("/settings")

    async def _events(self, request: web.Request) -> web.Response:
        wanted = pb.ListEventsRequest(limit=EVENTS_SHOWN_MAX, latest=True)
        reply = await self.call(request, lambda s: s.cluster.ListEvents, wanted)
        return self.render(request, "events.html.j2", events=reversed(reply.events))


_CERTIFICATE_COLUMNS: Final = (
    "Subject",
    "Issuer",
    "From (UTC)",
    "To (UTC)",
    "Key",
    "Made",
    "Digest",
)


def _certificate(one: Any) -> tuple[str, ...]:
    return (
        one.subject or "cannot be read",
        one.issuer,
        instant(one.not_before_s),
        instant(one.not_after_s),
        f"{one.key_bits} bits",
        "by this cluster" if one.is_internal else "elsewhere",
        one.digest.hex(),
    )


def _sequence(place: Any) -> str:
    if not place.sequence_identifier:
        return "none"
    return f"{place.sequence_number} of {place.sequence_identifier:x}"


def _more(path: str, token: str) -> str:
    return f"{path}?after={token}" if token else ""


def _is_simple(value: Any) -> bool:
    return isinstance(value, bool | int | str)
