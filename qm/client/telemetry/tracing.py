"""Traces that go through a queue: the sender's context travels in the message's extension.

Spans are named and described as the semantic conventions of OpenTelemetry for messaging say. The
context is written by the propagator of the process (W3C trace context, unless it set another one)
as headers of the extension (`qm.client.telemetry.headers`). An extension in which an application
keeps something else is never changed: such a message leaves without a context.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, overload

import msgspec
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider
from opentelemetry.util.types import AttributeValue

from qm.client.message import Message, ReceivedMessage
from qm.client.search import message_id_text
from qm.client.telemetry.headers import read_headers, write_headers

_SCOPE: Final = "quorate"
_SYSTEM: Final = "msmq"
"""Conventions have no name for it; theirs are those of the products."""

Attributes = dict[str, AttributeValue]
AsyncWork = Callable[[ReceivedMessage], Awaitable[None]]
PlainWork = Callable[[ReceivedMessage], None]


class Tracing:
    """Makes the spans of a program that sends and receives; for any number of threads and tasks."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        """Defaults are those of the process (`opentelemetry.trace`, `opentelemetry.propagate`)."""
        self._tracer: Final[Tracer] = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._propagator: Final = propagator

    @contextmanager
    def sending(self, queue: str, *messages: Message) -> Iterator[Sequence[Message]]:
        """Give the messages with the context of their sending, to be sent inside of the block:

            with tracing.sending(name, message) as messages:
                await client.send(name, *messages)

        One message has the span of its sending as its context; several have one each.
        """
        attributes = _described("send", queue)
        if len(messages) == 1:
            attributes |= _size(messages[0])
            with self._span("send", queue, SpanKind.PRODUCER, attributes):
                yield [self._with_context(messages[0])]
            return
        made = [self._created(queue, message) for message in messages]
        attributes["messaging.batch.message_count"] = len(messages)
        links = [Link(span.get_span_context()) for _, span in made]
        with self._span("send", queue, SpanKind.CLIENT, attributes, links=links):
            yield [message for message, _ in made]

    @contextmanager
    def processing(self, message: ReceivedMessage, queue: str = "") -> Iterator[Span]:
        """Have the span of the work on a message, a child of its sender's span.

        `queue`: where it was received, unless it is where it was sent to. An exception that leaves
        the block is recorded.
        """
        queue = queue or message.destination_queue
        attributes = _described("process", queue) | {
            "messaging.message.id": message_id_text(message.message_id),
            "messaging.message.body.size": len(message.body),
        }
        if any(message.correlation_id):
            attributes["messaging.message.conversation_id"] = message_id_text(
                message.correlation_id
            )
        context = self.context_of(message)
        with self._span("process", queue, SpanKind.CONSUMER, attributes, context) as span:
            yield span

    @overload
    def handler(self, work: AsyncWork, queue: str = "") -> AsyncWork: ...

    @overload
    def handler(self, work: PlainWork, queue: str = "") -> PlainWork: ...

    def handler(self, work: AsyncWork | PlainWork, queue: str = "") -> AsyncWork | PlainWork:
        """Return work for a runner that does `work` on each message in a span of its own:

        runner = orders.runner(tracing.handler(handle))
        """
        if inspect.iscoroutinefunction(work):

            @functools.wraps(work)
            async def traced(message: ReceivedMessage) -> None:
                with self.processing(message, queue):
                    await work(message)

            return traced

        @functools.wraps(work)
        def plainly_traced(message: ReceivedMessage) -> None:
            with self.processing(message, queue):
                work(message)

        return plainly_traced

    def context_of(self, message: ReceivedMessage) -> Context:
        """Return the context that a message's sender gave it; an empty one if it gave none."""
        headers = read_headers(message.extension) or {}
        propagator = self._propagator or propagate.get_global_textmap()
        return propagator.extract(headers, context=Context())

    def _created(self, queue: str, message: Message) -> tuple[Message, Span]:
        attributes = _described("create", queue) | _size(message)
        with self._span("create", queue, SpanKind.PRODUCER, attributes) as span:
            return self._with_context(message), span

    def _with_context(self, message: Message) -> Message:
        headers = read_headers(message.extension)
        if headers is None:
            return message
        propagator = self._propagator or propagate.get_global_textmap()
        propagator.inject(headers)
        if not headers:
            return message
        return msgspec.structs.replace(message, extension=write_headers(headers))

    @contextmanager
    def _span(
        self,
        operation: str,
        queue: str,
        kind: SpanKind,
        attributes: Attributes,
        context: Context | None = None,
        links: Sequence[Link] = (),
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            f"{operation} {queue}", context, kind, attributes, links
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise


def _described(operation: str, queue: str) -> Attributes:
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def _size(message: Message) -> Attributes:
    return {"messaging.message.body.size": len(message.body)}
