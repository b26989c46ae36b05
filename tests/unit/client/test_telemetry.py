"""Traces through queues: contexts in extensions, spans of senders and readers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from qm.client.blocking import BlockingClient
from qm.client.handling import Rejected
from qm.client.message import Message, ReceivedMessage
from qm.client.search import message_id_text
from qm.client.telemetry import Tracing, read_headers, write_headers
from tests.unit.client.world import PLAIN, Clients, scenario, until

OTHERS = b"""\
<?xml version="1.0"?>\r
<ArrayOfHeaderInfo xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xmlns:xsd="http://www.w3.org/2001/XMLSchema">\r
  <HeaderInfo>\r
    <Key>NServiceBus.ContentType</Key>\r
    <Value>text/xml</Value>\r
  </HeaderInfo>\r
  <HeaderInfo><Key>empty</Key><Value /></HeaderInfo>\r
  <HeaderInfo><Key>none</Key></HeaderInfo>\r
</ArrayOfHeaderInfo>"""


@dataclass(frozen=True)
class Traced:
    """A program's tracing, and the spans that have ended."""

    tracing: Tracing
    provider: TracerProvider
    exporter: InMemorySpanExporter

    def spans(self) -> dict[str, list[ReadableSpan]]:
        """By the first word of their names, in the order of their ends."""
        found: dict[str, list[ReadableSpan]] = {}
        for span in self.exporter.get_finished_spans():
            found.setdefault(span.name.split()[0], []).append(span)
        return found


def a_program() -> Traced:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Traced(Tracing(provider), provider, exporter)


@pytest.fixture
def traced() -> Traced:
    return a_program()


# Headers -----------------------------------------------------------------------------------


def test_headers_that_another_program_wrote_are_read_and_kept() -> None:
    found = read_headers(OTHERS)
    assert found == {"NServiceBus.ContentType": "text/xml", "empty": "", "none": ""}
    # NServiceBus passes over what lies behind the document, so do we.
    assert read_headers(OTHERS + b"\0\0junk") == found
    found["name"] = "<&> ü"
    assert read_headers(write_headers(found)) == found
    assert read_headers(write_headers({})) == {}


@pytest.mark.parametrize("extension", [b"", b"\0" * 8])
def test_an_empty_extension_has_no_headers(extension: bytes) -> None:
    assert read_headers(extension) == {}


@pytest.mark.parametrize(
    "extension",
    [
        b"application's own",
        b'{"rbs2-msg-id": "7"}',
        b"<HeaderInfo><Key>a</Key></HeaderInfo>",
        b"<other><ArrayOfHeaderInfo></ArrayOfHeaderInfo></other>",
        OTHERS[:-10],
        b'<!DOCTYPE a [<!ENTITY b "c">]>' + OTHERS.partition(b"\n")[2],
        b"<ArrayOfHeaderInfo>" + b"<a>" * 1_000 + b"</ArrayOfHeaderInfo>",
        OTHERS + b"\0" * 65_536,
    ],
)
def test_an_extension_of_something_else_has_none(extension: bytes) -> None:
    assert read_headers(extension) is None


# Sending -----------------------------------------------------------------------------------


def test_what_an_application_keeps_in_the_extension_stays(traced: Traced) -> None:
    kept = Message(extension=b"application's own")
    with traced.tracing.sending("orders", kept) as (message,):
        assert message.extension == b"application's own"
    with traced.tracing.sending("orders", Message(extension=OTHERS)) as (message,):
        headers = read_headers(message.extension)
    assert headers is not None
    assert headers["NServiceBus.ContentType"] == "text/xml"
    (_, span) = traced.spans()["send"]
    assert headers["traceparent"].split("-")[1:3] == [
        trace.format_trace_id(span.context.trace_id),
        trace.format_span_id(span.context.span_id),
    ]


def test_several_messages_have_a_span_each(traced: Traced) -> None:
    two = Message(body=b"one"), Message(body=b"three")
    with (
        traced.provider.get_tracer("test").start_as_current_span("request") as request,
        traced.tracing.sending("orders", *two) as messages,
    ):
        pass
    spans = traced.spans()
    (send,) = spans["send"]
    assert send.kind is SpanKind.CLIENT
    assert send.attributes is not None
    assert send.attributes["messaging.batch.message_count"] == 2
    assert [link.context for link in send.links] == [span.context for span in spans["create"]]
    for message, span, size in zip(messages, spans["create"], (3, 5), strict=True):
        assert span.kind is SpanKind.PRODUCER
        assert span.parent == request.get_span_context()
        assert dict(span.attributes or {}) == {
            "messaging.system": "msmq",
            "messaging.operation.name": "create",
            "messaging.operation.type": "create",
            "messaging.destination.name": "orders",
            "messaging.message.body.size": size,
        }
        headers = read_headers(message.extension)
        assert headers is not None
        assert headers["traceparent"].split("-")[2] == trace.format_span_id(span.context.span_id)


def test_a_send_that_fails_says_so(traced: Traced) -> None:
    with pytest.raises(OSError, match="gone"), traced.tracing.sending("orders", Message()):
        raise OSError("gone")
    (span,) = traced.spans()["send"]
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "OSError"


# Through a queue ---------------------------------------------------------------------------


@scenario()
async def test_a_reader_continues_the_trace_of_the_sender(made: Clients) -> None:
    sender, reader = a_program(), a_program()
    inside: list[trace.SpanContext] = []

    async def handle(message: ReceivedMessage) -> None:
        inside.append(trace.get_current_span().get_span_context())
        if message.body == b"bad":
            raise Rejected("nobody can read it")

    async with made.client() as client:
        for body in (b"good", b"bad"):
            message = Message(body=body, correlation_id=bytes(16) + b"\x07\0\0\0")
            with sender.tracing.sending(PLAIN, message) as messages:
                await client.send(PLAIN, *messages)
        await client.send(PLAIN, Message(body=b"untraced"))
        queue = await client.open_queue(PLAIN)
        first = await queue.peek()
        runner = queue.runner(reader.tracing.handler(handle, PLAIN), concurrency=1)
        running = asyncio.create_task(runner.run())
        await until(lambda: runner.handled + runner.returned == 3)
        runner.stop()
        await running
    assert first is not None
    sent, processed = sender.spans()["send"], reader.spans()["process"]
    assert [span.context for span in processed] == inside
    assert [span.parent and span.parent.span_id for span in processed] == [
        sent[0].context.span_id,
        sent[1].context.span_id,
        None,
    ]
    assert processed[0].context.trace_id == sent[0].context.trace_id
    assert [span.status.status_code for span in processed[:2]] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]
    assert {span.kind for span in processed} == {SpanKind.CONSUMER}
    assert dict(processed[0].attributes or {}) == {
        "messaging.system": "msmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": PLAIN,
        "messaging.message.id": message_id_text(first.message_id),
        "messaging.message.body.size": 4,
        "messaging.message.conversation_id": message_id_text(bytes(16) + b"\x07\0\0\0"),
    }


@scenario()
async def test_blocking_programs_trace_in_their_own_threads(made: Clients) -> None:
    program = a_program()

    def run() -> None:
        with BlockingClient(made.endpoints, tls=made.tls) as client:
            with program.tracing.sending(PLAIN, Message(body=b"x")) as messages:
                client.send(PLAIN, *messages)

            def handle(message: ReceivedMessage) -> None:
                with program.provider.get_tracer("test").start_as_current_span("inner"):
                    runner.stop()

            runner = client.open_queue(PLAIN).runner(program.tracing.handler(handle))
            runner.run()

    await asyncio.to_thread(run)
    spans = program.spans()
    (send,), (process,), (inner,) = spans["send"], spans["process"], spans["inner"]
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert inner.parent == process.context
