"""Pages for people of the role client: what the access list of a queue shows, and nothing else."""

import contextlib
import re
import ssl
from collections.abc import AsyncIterator

from qm.api.gate.identity import Role
from qm.client.message import Message
from qm.node.upkeep.pki import issue
from qm.pb import control_pb2 as pb
from tests.unit.client.world import Clients, scenario
from tests.unit.console.world import Browser, browser, sign_in

NAME = "QUORATE\\private$\\guarded"
PROPERTIES = ("Format name", "<h2>All attributes</h2>", "guarded")
MESSAGES = ("order 1", "of a kind")


@contextlib.asynccontextmanager
async def signed_in(made: Clients, name: str, role: Role) -> AsyncIterator[Browser]:
    """Somebody whose certificate the browser shows."""
    certificate, key = issue(made.tls.authority.parent, name, role, [])
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(certificate, key)
    async with browser(made, tls) as found:
        assert (await found.get("/sign-in"))[0] == 200
        yield found


async def put_acl(made: Clients, *rights: str) -> None:
    entries = [pb.Ace(type=pb.ALLOW, principal="Administrators", rights=["queue_generic_all"])]
    if rights:
        entries.append(pb.Ace(type=pb.ALLOW, principal="carol", rights=rights))
    request = pb.SetAclRequest(queue=pb.QueueName(name=NAME), entries=entries)
    async with made.client() as admin:
        await admin.wire.call(lambda stubs: stubs.queues.SetAcl, request)


@scenario()
async def test_a_client_opens_the_page_of_a_queue_as_far_as_its_access_list_admits(
    made: Clients,
) -> None:
    await made.create(NAME)
    async with made.client() as client:
        await client.send(NAME, Message(body=b"of a kind", label="order 1"))
    async with browser(made) as admin, signed_in(made, "carol", Role.CLIENT) as carol:
        await sign_in(made, admin)
        _, text = await admin.get("/queues?filter=guarded")
        (link,) = re.findall(r'href="(/queues/[0-9]+)">QUORATE', text)
        _, text = await admin.get(link)
        (key,) = re.findall(rf'href="{link}/([0-9]+)"', text)

        async def seen() -> tuple[bool, bool]:
            """Whether carol sees properties, and messages; no page shows a part of either."""
            status, text = await carol.get(link)
            shown = {one: one in text for one in (*PROPERTIES, "order 1")}
            assert (status == 200) == any(shown.values())
            assert len({shown[one] for one in PROPERTIES}) == 1, shown
            for path in (f"{link}/{key}", f"{link}/{key}/body", f"{link}/{key}/edit"):
                status, text = await carol.get(path)
                assert (status == 200) == shown["order 1"], path
                assert ("of a kind" in text) == shown["order 1"], path
            _, text = await carol.get("/queues?filter=guarded")
            assert (f'href="{link}"' in text) == shown["guarded"]
            _, text = await carol.get("/search?text=order")
            sees_both = shown["order 1"] and shown["guarded"]
            assert (f'href="{link}/{key}"' in text) == sees_both
            return shown["guarded"], shown["order 1"]

        await put_acl(made)
        assert await seen() == (False, False)
        await put_acl(made, "peek_message")
        assert await seen() == (False, True)
        await put_acl(made, "get_queue_properties")
        assert await seen() == (True, False)
        await put_acl(made, "peek_message", "get_queue_properties")
        assert await seen() == (True, True)
        _, text = await carol.get(link)
        for absent in ("Delete the chosen", "Purge all", "<h2>Settings", "Who has it open"):
            assert absent not in text
        assert "Copy the chosen" in text


@scenario()
async def test_a_client_begins_at_the_queues_and_is_led_to_no_page_that_refuses(
    made: Clients,
) -> None:
    async with signed_in(made, "carol", Role.CLIENT) as carol:
        status, text = await carol.get("/")
        assert status == 200
        assert "<h1>Queues</h1>" in text
        nav = text[text.index("<nav") : text.index("</nav>")]
        paths = re.findall(r'href="([^"]+)"', nav)
        assert "/queues" in paths
        for path in paths:
            assert (await carol.get(path))[0] == 200, path
        for path in ("/events", "/outgoing", "/live"):
            assert path not in paths
            assert (await carol.get(path))[0] == 403, path
        status, text = await carol.post("/queues", path="own")
        assert status == 200
        (link,) = set(re.findall(r'action="(/queues/[0-9]+)/send"', text))
        status, text = await carol.post(f"{link}/send", body="hello", label="greeting")
        assert "greeting" in text
        assert "Delete the queue" in text
    async with signed_in(made, "oscar", Role.OPERATOR) as oscar:
        _, text = await oscar.get("/")
        nav = text[text.index("<nav") : text.index("</nav>")]
        assert {"/events", "/reports", "/"} <= set(re.findall(r'href="([^"]+)"', nav))
