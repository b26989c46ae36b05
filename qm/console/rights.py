"""Who may use a queue or the queue manager: its access list, and one entry more or less."""

from typing import Any, Final

from aiohttp import web

from qm.client.values import kept_entry
from qm.console.forms import form_of, values_of
from qm.console.page_group import PageGroup, number, see
from qm.pb import control_pb2 as pb
from qm.wire.access_mask import MachineAccess, QueueAccess

_TYPES: Final = tuple(name.lower() for name in pb.AceType.DESCRIPTOR.values_by_name)


class Rights(PageGroup):
    """Handlers of access lists."""

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        return [
            route
            for owner in ("/queues/{queue:[0-9]+}", "/settings")
            for route in (
                web.get(f"{owner}/acl", self._shown),
                web.post(f"{owner}/acl", self._add),
                web.post(f"{owner}/acl/remove", self._remove),
                web.get(f"{owner}/acl/explain", self._explained),
            )
        ]

    async def _shown(self, request: web.Request) -> web.Response:
        return await self._page(request)

    async def _page(self, request: web.Request, who: str = "", decisions: Any = ()) -> web.Response:
        queue = await self.found_queue(request) if _is_of_queue(request) else None
        access = MachineAccess if queue is None else QueueAccess
        return self.render(
            request,
            "acl.html.j2",
            queue=queue,
            path=request.path.partition("/acl")[0],
            acl=await self._acl(request),
            types=_TYPES,
            rights=[name.lower() for name in access.__members__],
            who=who,
            decisions=decisions,
        )

    async def _acl(self, request: web.Request) -> Any:
        wanted = pb.GetAclRequest(queue=self._owner(request))
        return await self.call(request, lambda s: s.queues.GetAcl, wanted)

    def _owner(self, request: web.Request) -> pb.QueueName | None:
        return self.queue_name(request) if _is_of_queue(request) else None

    async def _add(self, request: web.Request) -> web.Response:
        """Add an entry; those that deny come before those that allow."""
        form = await form_of(request)
        kind, rights = form.get("type", ""), await values_of(request, "right")
        who = form.get("who", "").strip()
        if kind not in _TYPES or not rights or not who:
            raise web.HTTPBadRequest(reason="choose allow or deny, name whom, and choose rights")
        entry = pb.Ace(type=pb.AceType.Value(kind.upper()), rights=rights)
        if who.upper().startswith("S-1-"):
            entry.sid = who
        else:
            entry.principal = who
        kept = [kept_entry(one) for one in (await self._acl(request)).entries]
        entries = sorted([*kept, entry], key=lambda one: one.type != pb.DENY)
        return await self._change(request, entries, number(form.get("version", "")))

    async def _remove(self, request: web.Request) -> web.Response:
        """Remove the entry at a place of the list as the browser saw it."""
        form = await form_of(request)
        place = number(form.get("place", ""))
        kept = [kept_entry(one) for one in (await self._acl(request)).entries]
        if place >= len(kept):
            raise web.HTTPBadRequest(reason="there is no such entry any more: open the page again")
        del kept[place]
        return await self._change(request, kept, number(form.get("version", "")))

    async def _change(
        self, request: web.Request, entries: list[pb.Ace], version: int
    ) -> web.Response:
        """Replace the list, if it is still the one that the browser saw."""
        wanted = pb.SetAclRequest(queue=self._owner(request), entries=entries, if_version=version)
        await self.call(request, lambda s: s.queues.SetAcl, wanted)
        return see(request.path.removesuffix("/remove"))

    async def _explained(self, request: web.Request) -> web.Response:
        """Say which entry decides on each right of somebody."""
        who = request.query.get("who", "").strip()
        if not who:
            raise web.HTTPBadRequest(reason="name whom: a principal, or S-1-...")
        wanted = pb.ExplainAclRequest(queue=self._owner(request), who=who)
        reply = await self.call(request, lambda s: s.queues.ExplainAcl, wanted)
        return await self._page(request, who, reply.decisions)


def _is_of_queue(request: web.Request) -> bool:
    return "queue" in request.match_info
