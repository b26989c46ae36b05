"""Metrics of queues: what they hold, under our names and those of windows_exporter, and how many
series there are.
"""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from qm.model.values.commands import CreateQueue
from qm.node.upkeep.gauges import OTHER, QUEUES_MAX
from tests.cluster.harness import HarnessNode, run
from tests.cluster.messages import batch, propose
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import world
from tests.unit.model.world import request

NAME = r"QUORATE\private$\orders"
DEAD_LETTERS = "deadletter"
QUEUES = 5_200
"""With their journals more than ten thousand, where sums ended once."""


async def metrics(node: HarnessNode) -> dict[str, dict[str, float]]:
    """Return name -> its label's value -> value, of what has one label or none."""
    url = f"http://{node.host}:{node.config.http.port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if len(sample.labels) <= 1:
                label = next(iter(sample.labels.values()), "")
                found.setdefault(sample.name, {})[label] = sample.value
    return found


def test_what_a_queue_and_its_journal_hold_is_told_under_both_names() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client, journaling=True, quota=64)
            await client.send(ORDERS, b"taken", bytes(1_000), bytes(2_000))
            await client.send(ORDERS, b"x", dead_letter=True, time_to_be_received_s=0)
            await client.receive(await client.open(ORDERS))
            found = await metrics((await made.leader()).node)
            for ours, theirs in (
                ("quorate_queue_messages", "windows_msmq_messages_in_queue"),
                ("quorate_queue_bytes", "windows_msmq_bytes_in_queue"),
            ):
                assert found[ours] == found[theirs]
            assert found["quorate_queue_messages"][NAME] == 2
            size = found["quorate_queue_bytes"][NAME]
            assert 3_000 < size < 5_000
            assert found["windows_msmq_messages_in_journal_queue"][NAME] == 1
            assert 0 < found["windows_msmq_bytes_in_journal_queue"][NAME] < 1_000
            assert found["quorate_deadletter_messages"][DEAD_LETTERS] == 1
            assert 0 <= found["quorate_queue_oldest_seconds"][NAME] < 60
            assert found["quorate_queue_quota_ratio"][NAME] == size / (64 * 1024)

    run(scenario())


def test_of_very_many_queues_the_others_are_summed_and_the_total_is_whole() -> None:
    async def scenario() -> None:
        async with world() as made:
            node = (await made.leader()).node
            names = [f"many-{number}" for number in range(QUEUES)]
            outcomes = await node.cluster.propose(
                *(
                    CreateQueue(
                        request(),
                        one.encode().ljust(16, b"\0"),
                        one.encode().rjust(16, b"\0"),
                        f".\\private$\\{one}",
                        {},
                        b"",
                        (),
                    )
                    for one in names
                )
            )
            assert {outcome.status for outcome in outcomes} == {0}
            filled = names[:QUEUES_MAX] + names[-7:]
            for number, one in enumerate(filled):
                await propose(node, batch(one, [number + 1], number + 1))
            found = await metrics(node)
            messages = found["quorate_queue_messages"]
            assert len(messages) == len(found["windows_msmq_messages_in_queue"]) == QUEUES_MAX + 1
            assert messages[OTHER] == 7
            assert sum(messages.values()) == len(filled)
            assert sum(found["quorate_queue_bytes"].values()) > 100 * len(filled)
            assert len(found["quorate_queue_oldest_seconds"]) == QUEUES_MAX

    run(scenario())
