"""The console of a node of a real cluster, as a browser meets it."""

import asyncio
import contextlib
import gzip
import io
import logging
import re
import resource
import ssl

import pytest
from typing_extensions import override

from qm.api.gate.delegation import FOR_KEY, WORD_KEY
from qm.api.gate.identity import Role
from qm.client.calls import Calls, Tls
from qm.client.errors import NotAllowed
from qm.client.message import Message
from qm.console.entry import SESSION_COOKIE
from qm.console.forms import FIELDS_MAX, FORM_MAX_BYTES
from qm.console.server import REQUESTS_PER_PERSON_MAX
from qm.node import http_guard
from qm.node.config.schema import API_PORT, CONSOLE_PORT
from qm.node.http_guard import HANDSHAKE_MAX_S
from qm.node.upkeep.pki import issue
from qm.pb import control_pb2 as pb
from tests.unit.api.world import eventually
from tests.unit.client.world import PLAIN, Clients, scenario
from tests.unit.console.world import Browser, browser, sign_in

FORM = "application/x-www-form-urlencoded"
HOSTILE = "<script>alert(1)</script>"


@scenario()
async def test_who_is_not_signed_in_sees_nothing(made: Clients) -> None:
    async with browser(made) as found:
        for path in ("/", "/queues", "/figures", "/queues/1/1/body"):
            status, text = await found.get(path)
            assert status == 401
            assert "qm console" in text
        assert (await found.get("/static/console.css"))[0] == 200
        assert (await found.get("/static/..%2fserver.py"))[0] == 404
        assert (await found.post("/queues", path="x"))[0] == 401


@scenario()
async def test_a_handshake_that_does_not_come_ends(
    made: Clients,
) -> None:
    (node,) = made.harness.up
    reader, writer = await asyncio.open_connection(node.host, CONSOLE_PORT)
    assert await asyncio.wait_for(reader.read(), 2 * HANDSHAKE_MAX_S) == b""
    writer.close()


@scenario()
async def test_connections_count_before_their_handshake(made: Clients) -> None:
    """Whoever said nothing took descriptors without a limit."""
    (node,) = made.harness.up
    async with contextlib.AsyncExitStack() as held:
        for _ in range(http_guard.LIMITS.per_address + 8):
            reader, writer = await asyncio.open_connection(
                node.host, CONSOLE_PORT, local_addr=("127.0.0.9", 0)
            )
            held.callback(writer.transport.abort)
        assert await asyncio.wait_for(reader.read(), HANDSHAKE_MAX_S / 2) == b""
        async with browser(made) as found:
            assert (await found.get("/sign-in"))[0] == 401


@scenario()
async def test_a_body_that_unpacks_to_much_more_is_not_unpacked(made: Clients) -> None:
    """That needs no sign-in, and happened in the event loop."""
    (node,) = made.harness.up
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    bomb = gzip.compress(bytes(1 << 28), 6)
    head = (
        f"POST /queues HTTP/1.1\r\nHost: {node.host}\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(bomb)}\r\n\r\n"
    )
    before = _peak_mib()
    for _ in range(4):
        reader, writer = await asyncio.open_connection(node.host, CONSOLE_PORT, ssl=tls)
        writer.write(head.encode() + bomb)
        assert b"303" in await reader.readline()
        await asyncio.sleep(0.2)
        writer.transport.abort()
    assert _peak_mib() - before < 24


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


class Listening(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.said: list[logging.LogRecord] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record)


@scenario()
async def test_bad_requests_are_named_once_and_without_a_traceback(made: Clients) -> None:
    """Each wrote one."""
    (node,) = made.harness.up
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    listening = Listening(logging.WARNING)
    logging.getLogger().addHandler(listening)
    try:
        for _ in range(3):
            for bad in (b"\xff\xfe\r\n\r\n", b"GET / HTTP/1.1\r\n\0: x\r\n\r\n"):
                reader, writer = await asyncio.open_connection(node.host, CONSOLE_PORT, ssl=tls)
                writer.write(bad)
                assert b" 400 " in await reader.readline()
                writer.transport.abort()
    finally:
        logging.getLogger().removeHandler(listening)
    (said,) = listening.said
    assert not said.exc_info


async def posted(found: Browser, content: str, body: bytes) -> int:
    url = f"https://{found.host}:{CONSOLE_PORT}/queues"
    headers = {"Content-Type": content}
    async with found.session.post(url, data=io.BytesIO(body), headers=headers) as answer:
        return answer.status


@scenario()
async def test_a_form_is_bounded(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        await found.get("/queues")
        fields = {f"f{k}": "x" for k in range(FIELDS_MAX)}
        assert (await found.post("/queues", **fields))[0] == 400
        assert await posted(found, FORM, b"x" * (FORM_MAX_BYTES + 1)) == 413
        assert (await found.post("/queues", token="wrong", path="x"))[0] == 403
        for content, body in (("text/plain", b"x"), (FORM, b"\xff"), (FORM, b"token=%ff")):
            assert await posted(found, content, body) in (400, 415)
        assert (await found.post("/queues", path="made"))[0] == 200


@scenario()
async def test_one_person_has_a_few_requests_in_progress(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        async with contextlib.AsyncExitStack() as held:

            async def refused() -> bool:
                """Begin another one, and ask for something else."""
                _, writer = await _begun_form(made, found)
                held.callback(writer.transport.abort)
                await asyncio.sleep(0.1)  # else this request may be the one that takes the place
                return (await found.get("/queues"))[0] == 429

            for _ in range(REQUESTS_PER_PERSON_MAX - 1):
                assert not await refused()
            await eventually(refused, bool)
            certificate, key = issue(made.tls.authority.parent, "oscar", Role.OPERATOR, [])
            tls = ssl.create_default_context(cafile=str(made.tls.authority))
            tls.load_cert_chain(certificate, key)
            async with browser(made, tls) as another:
                assert (await another.get("/sign-in"))[0] == 200

        async def answered() -> bool:
            return (await found.get("/queues"))[0] == 200

        await eventually(answered, bool)


async def _begun_form(
    made: Clients, found: Browser
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    reader, writer = await asyncio.open_connection(found.host, CONSOLE_PORT, ssl=tls)
    head = (
        f"POST /queues HTTP/1.1\r\nHost: x\r\nCookie: {SESSION_COOKIE}={found.cookie}\r\n"
        f"Content-Type: {FORM}\r\nContent-Length: 1000\r\n\r\n"
    )
    writer.write(head.encode())
    return reader, writer


@scenario()
async def test_every_page_opens_and_hostile_texts_stay_texts(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, Message(body=HOSTILE.encode(), label=HOSTILE))
        await client.send(PLAIN, Message(body=b'{"a": 1}', label="json"))
    async with browser(made) as found:
        await sign_in(made, found)
        paths = ["/", "/live", "/queues", "/queues?sort=messages&filter=plain", "/outgoing"]
        paths += ["/clients", "/transactions", "/events", "/queues?kind=dead_letter", "/peers"]
        paths += ["/opens", "/opens?client=x&queue=1", "/search", "/certificates?who=admin"]
        paths += ["/settings", "/search?text=script&label=on"]
        for path in paths:
            status, text = await found.get(path)
            assert status == 200, (path, text)
        _, text = await found.get("/live")
        assert "<td>leader</td>" in text
        _, text = await found.get("/queues?filter=plain")
        (link,) = re.findall(r'href="(/queues/[0-9]+)">QUORATE', text)
        _, text = await found.get(link)
        assert HOSTILE not in text
        keys = re.findall(rf'href="{link}/([0-9]+)"', text)
        assert len(keys) == 2
        status, text = await found.get(f"{link}/{keys[0]}")
        assert status == 200
        assert HOSTILE not in text
        assert "&lt;script&gt;" in text
        status, text = await found.get(f"{link}/{keys[0]}/body")
        assert text == HOSTILE
        _, text = await found.get(f"{link}/{keys[1]}?form=json")
        assert "{\n  &#34;a&#34;: 1\n}" in text
        for path in ("/queues?sort=x", "/queues?first=x", "/queues?first=-1", f"{link}?after=zz"):
            assert (await found.get(path))[0] == 400, path
        assert (await found.get("/queues/99999"))[0] == 400
        assert (await found.get("/nowhere"))[0] == 404


@scenario()
async def test_what_buttons_do_is_done_and_needs_the_token(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        status, text = await found.post("/queues", path="made")
        assert status == 200, text
        (queue_id,) = set(re.findall(r'action="/queues/([0-9]+)/send"', text))
        link = f"/queues/{queue_id}"
        token, found.token = found.token, "another"
        for path in (f"{link}/purge", f"{link}/delete", "/sign-out"):
            assert (await found.post(path))[0] == 403
        found.token = token
        status, text = await found.post(f"{link}/send", body="hello", label="greeting")
        assert "greeting" in text
        await found.post(f"{link}/send", body="second", label="other")
        key = re.findall(rf'href="{link}/([0-9]+)"', text)[0]
        status, text = await found.post(f"{link}/{key}/delete")
        assert status == 200
        assert "greeting" not in text
        status, text = await found.post(f"{link}/set", label="new", quota="seven")
        assert status == 400
        status, text = await found.post(
            f"{link}/set", label="new", quota="7", max_deliveries="0", retry_delay_ms="0"
        )
        assert 'value="7"' in text
        status, text = await found.post(f"{link}/purge")
        assert "other" not in text
        status, text = await found.post(f"{link}/delete")
        assert "private$\\made" not in text
        _, text = await found.get("/events")
        assert "admin" in text
        assert "PurgeQueue" in text
        assert (await found.post("/sign-out"))[0] == 401
        assert (await found.get("/queues"))[0] == 401


@scenario()
async def test_a_certificate_of_the_browser_signs_in_with_its_role(made: Clients) -> None:
    pki = made.tls.authority.parent
    certificate, key = issue(pki, "oscar", Role.OPERATOR, [])
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(certificate, key)
    async with browser(made, tls) as found:
        status, text = await found.get("/sign-in")
        assert status == 200
        assert "oscar (operator)" in text
        # The browser shows its certificate again; that alone is no wish to sign in again.
        assert (await found.post("/sign-out"))[0] == 401
        assert (await found.get("/sign-in"))[0] == 200
    node_certificate, node_key = issue(pki, "n9", Role.NODE, [])
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(node_certificate, node_key)
    async with browser(made, tls) as found:
        assert (await found.get("/sign-in"))[0] == 401


@scenario()
async def test_no_certificate_calls_for_somebody_else(made: Clients) -> None:
    """Only the console knows the word of its process."""
    (node,) = made.harness.up
    files = made.harness.certificate(node.name)
    tls = Tls(files.authority, files.certificate, files.key, server_name=node.name)
    for word in ("", "guess"):
        metadata = ((WORD_KEY, word), (FOR_KEY, "admin:admin"))
        wire = Calls([f"{node.host}:{API_PORT}"], tls, metadata=metadata)
        with pytest.raises(NotAllowed):
            await wire.call(lambda stubs: stubs.queues.ListQueues, pb.ListQueuesRequest())
        await wire.close()


async def queue_with(made: Clients, found: Browser, name: str, *messages: Message) -> str:
    """Make a queue with messages; return the path of its page."""
    async with made.client() as client:
        await made.create(f"QUORATE\\private$\\{name}")
        if messages:
            await client.send(f".\\private$\\{name}", *messages)
    _, text = await found.get(f"/queues?filter={name}")
    (link,) = re.findall(r'href="(/queues/[0-9]+)">QUORATE', text)
    return str(link)


async def labels(found: Browser, link: str) -> list[str]:
    _, text = await found.get(link)
    return re.findall(r"<td>([a-z]+ [0-9])</td>", text)


async def keys(found: Browser, link: str) -> list[str]:
    _, text = await found.get(link)
    return re.findall(rf'href="{link}/([0-9]+)"', text)


@scenario()
async def test_a_copy_lives_as_long_as_its_original(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        brief = Message(body=b"a", label="brief", time_to_be_received_s=7_777)
        source = await queue_with(made, found, "source", brief, Message(body=b"b", label="long"))
        target = await queue_with(made, found, "target")
        for key in await keys(found, source):
            assert (await found.post(f"{source}/{key}/copy", target="target"))[0] == 200
        shown = {key: (await found.get(f"{target}/{key}"))[1] for key in await keys(found, target)}
        assert ["7777" in text or "7,777" in text for text in shown.values()] == [True, False]


@scenario()
async def test_messages_are_copied_moved_and_deleted_one_or_several(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        sent = [
            Message(body=b"<a>%d</a>" % n, label=f"order {n}", priority=n, correlation_id=b"c" * 20)
            for n in range(6)
        ]
        source = await queue_with(made, found, "source", *sent)
        target = await queue_with(made, found, "target")
        first, second, third, *rest = await keys(found, source)
        assert (await found.post(f"{source}/{first}/copy", target="target"))[0] == 200
        assert await labels(found, target) == ["order 5"]
        (copied,) = await keys(found, target)
        _, text = await found.get(f"{target}/{copied}")
        assert (b"c" * 20).hex() in text
        assert "&lt;a&gt;5&lt;/a&gt;" in text
        assert (await found.post(f"{source}/{second}/move", target="target"))[0] == 200
        assert await labels(found, target) == ["order 5", "order 4"]
        assert len(await labels(found, source)) == 5
        assert (await found.post(f"{source}/{second}/move", target="target"))[0] == 400
        assert (await found.post(f"{source}/{third}/move", target="missing"))[0] == 400
        assert len(await labels(found, source)) == 5
        last = rest.pop()
        assert (await found.post(f"{source}/{last}/move", target="source;later"))[0] == 200
        _, text = await found.get(source)
        (subqueue,) = re.findall(r'href="(/queues/[0-9]+)">Subqueue', text)
        assert await labels(found, subqueue) == ["order 0"]
        (waiting,) = await keys(found, subqueue)
        assert (await found.post(f"{subqueue}/{waiting}/return"))[0] == 200
        rest += await keys(found, source) and [(await keys(found, source))[-1]]
        several = f"{source}/messages"
        assert (await found.post(several, verb="copy", key=[first, third], target="target"))[
            0
        ] == 200
        assert sorted(await labels(found, target)) == ["order 3", "order 4", "order 5", "order 5"]
        assert (await found.post(several, verb="move", key=[third], target="target"))[0] == 200
        # One that has left does not keep the others.
        status, text = await found.post(several, verb="delete", key=[third, *rest])
        assert status == 200
        assert f"{len(rest)} done, 1 not" in text
        assert await labels(found, source) == ["order 5"]
        token, found.token = found.token, "another"
        assert (await found.post(several, verb="delete", key=[first]))[0] == 403
        found.token = token
        for fields in (
            {"verb": "delete"},
            {"verb": "burn", "key": first},
            {"verb": "copy", "key": "x"},
        ):
            assert (await found.post(several, **fields))[0] == 400
        assert (await found.post(f"{source}/{first}/copy", target=" "))[0] == 400
        status, text = await found.post(f"{source}/{first}/copy", target="missing")
        assert status == 400
        assert "QUEUE_NOT_FOUND" in text


@scenario()
async def test_a_message_is_edited_and_sent_again(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        text = Message.of_text("old text", label="order 1", priority=6)
        raw = Message(body=b"\0\xff", label="order 2", priority=5)
        long = Message(body=b"x" * 70_000, label="order 3", priority=4)
        link = await queue_with(made, found, "edited", text, raw, long)
        first, second, third = await keys(found, link)
        _, page = await found.get(f"{link}/{first}/edit")
        assert "old text" in page
        assert 'value="utf-16-le"' in page
        status, _ = await found.post(
            f"{link}/{first}/resend",
            target="edited",
            label="order 7",
            priority="7",
            form="utf-16-le",
            body="new text",
            delete="on",
        )
        assert status == 200
        assert await labels(found, link) == ["order 7", "order 2", "order 3"]
        async with made.client() as client:
            queue = await client.open_queue(".\\private$\\edited")
            message = await queue.peek()
            assert message is not None
            assert (message.text, message.body_type) == ("new text", 8)
        _, page = await found.get(f"{link}/{second}/edit")
        assert "00 ff" in page
        fields = {"target": "edited", "label": "order 8", "priority": "7", "form": "hex"}
        assert (await found.post(f"{link}/{second}/resend", **fields, body="zz"))[0] == 400
        assert (await found.post(f"{link}/{second}/resend", **fields, body="01 02"))[0] == 200
        assert await labels(found, link) == ["order 7", "order 8", "order 2", "order 3"]
        assert (await found.get(f"{link}/{third}/edit"))[0] == 400


@scenario()
async def test_a_copy_goes_to_a_transactional_queue_in_a_transaction(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        link = await queue_with(made, found, "plainer", Message(body=b"x", label="order 1"))
        (key,) = await keys(found, link)
        assert (await found.post(f"{link}/{key}/copy", target="transactional"))[0] == 200
        _, text = await found.get("/queues?filter=transactional")
        (target,) = re.findall(r'href="(/queues/[0-9]+)">QUORATE', text)
        assert await labels(found, target) == ["order 1"]


@scenario()
async def test_messages_are_found_by_what_is_in_them(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        one = Message(body="Rechnung größer".encode("utf-16-le"), label="order 1")
        await queue_with(made, found, "archive", one, Message(body=b"other", label="order 2"))
        for query in (
            "text=GR%C3%96SSER",
            "text=gr%C3%B6%C3%9Fer&body=on",
            "text=order+1&label=on",
        ):
            _, text = await found.get(f"/search?{query}&queue=archive")
            assert "1 found in 2 messages" in text, query
            assert "order 1" in text
        _, text = await found.get("/search?text=order+1&body=on")
        assert "0 found" in text


@scenario()
async def test_a_message_is_traced_with_its_copies_and_acknowledgments(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        await queue_with(made, found, "told")
        one = Message(
            body=b"x", acknowledgements=5, administration_queue="DIRECT=OS:QUORATE\\private$\\told"
        )
        link = await queue_with(made, found, "traced", one)
        (key,) = await keys(found, link)
        _, text = await found.get(f"{link}/{key}")
        (trace,) = re.findall(r'href="(/trace\?id=[0-9a-f]{40})"', text)
        status, text = await found.get(trace)
        assert status == 200
        assert f'href="{link}/{key}"' in text
        assert "ACK_REACH_QUEUE" in text
        assert "There may be more" not in text
        await found.post(f"{link}/{key}/delete")
        _, text = await found.get(trace)
        assert "No queue holds it" in text
        for query in ("", "?id=zz", "?id=abcd"):
            assert (await found.get(f"/trace{query}"))[0] == 400


@scenario()
async def test_settings_change_one_at_a_time(made: Clients) -> None:
    async with browser(made) as found:
        await sign_in(made, found)
        _, text = await found.get("/settings")
        assert "queue_manager_quota" in text
        status, text = await found.post("/settings", name="queue_manager_quota", value="4242")
        assert status == 200, text
        assert 'value="4242"' in text
        for fields in (
            {"name": "computer_name", "value": "x"},
            {"name": "queue_manager_quota", "value": "-"},
        ):
            assert (await found.post("/settings", **fields))[0] == 400


@scenario()
async def test_who_may_change_nothing_sees_no_buttons_for_it(made: Clients) -> None:
    certificate, key = issue(made.tls.authority.parent, "oscar", Role.OPERATOR, [])
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(certificate, key)
    async with browser(made, tls) as found:
        await found.get("/sign-in")
        _, text = await found.get("/settings")
        assert "queue_manager_quota" in text
        assert "Change" not in text
        assert (await found.post("/settings", name="queue_manager_quota", value="1"))[0] == 403


@scenario()
async def test_buttons_follow_the_access_list_of_the_queue(made: Clients) -> None:
    certificate, key = issue(made.tls.authority.parent, "oscar", Role.OPERATOR, [])
    tls = ssl.create_default_context(cafile=str(made.tls.authority))
    tls.load_cert_chain(certificate, key)
    async with browser(made) as admin, browser(made, tls) as oscar:
        await sign_in(made, admin)
        await oscar.get("/sign-in")
        link = await queue_with(made, admin, "guarded", Message(body=b"x", label="one"))
        queue = pb.QueueName(name="QUORATE\\private$\\guarded")
        buttons = {
            "write_message": {"<h2>Send a message"},
            "receive_message": {"Delete the chosen", "Move the chosen", "Purge all"},
            "delete_queue": {"Delete the queue"},
            "set_queue_properties": {"<h2>Settings"},
        }
        everything = set.union(*buttons.values())
        for rights, shown in (*((one, buttons[one]) for one in buttons), ("", set())):
            entries = [
                pb.Ace(type=pb.ALLOW, principal="oscar", rights=["peek_message", rights])
                if rights
                else pb.Ace(type=pb.ALLOW, principal="oscar", rights=["peek_message"]),
                pb.Ace(type=pb.ALLOW, principal="Administrators", rights=["queue_generic_all"]),
            ]
            async with made.client() as client:
                await client.wire.call(
                    lambda stubs: stubs.queues.SetAcl,
                    pb.SetAclRequest(queue=queue, entries=entries),
                )
            _, text = await oscar.get(link)
            assert {one for one in everything if one in text} == shown, rights
            (key_,) = set(re.findall(rf'href="{link}/([0-9]+)"', text))
            _, text = await oscar.get(f"{link}/{key_}")
            assert ("Delete the message" in text) == (rights == "receive_message")
            assert ("<button>Move" in text) == (rights == "receive_message")
            if rights != "receive_message":
                assert (await oscar.post(f"{link}/{key_}/delete"))[0] == 403
        _, text = await admin.get(link)
        assert everything <= {one for one in everything if one in text}
