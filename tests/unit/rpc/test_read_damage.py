"""Remote read of a message whose body is damaged on the node that is asked."""

import pytest

from tests.cluster.harness import run
from tests.cluster.test_scrub import bodies, flip
from tests.unit.rpc.reading import PEEK_CURRENT, RECEIVE, body, rpc_world, with_orders

UNAVAILABLE = 0xC00E000B


def test_a_body_that_is_damaged_here_is_read_from_another_node() -> None:
    async def scenario() -> None:
        async with rpc_world(3) as made:
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"x" * 500)
            node, _ = await made.harness.followers()
            await made.harness.agree()
            (known,) = bodies(node)
            flip(node, known.place.index, 64 + known.place.offset + 300)
            reader = await made.reader(node)
            handle = await reader.open()
            for action in (PEEK_CURRENT, RECEIVE):
                found = await reader.start(handle, action)
                assert found.status == 0
                assert body(found) == b"x" * 500
            assert node.service.scrubber.healer.is_whole

    run(scenario())


@pytest.mark.parametrize("action", [PEEK_CURRENT, RECEIVE])
def test_a_body_that_no_node_has_is_an_error_and_its_message_goes_back(action: int) -> None:
    async def scenario() -> None:
        async with rpc_world() as made:
            async with made.client(await made.leader()) as client:
                await with_orders(client, b"x" * 500)
            node = await made.harness.leader()
            (known,) = bodies(node)
            flip(node, known.place.index, 64 + known.place.offset + 300)
            reader = await made.reader(node)
            handle = await reader.open()
            for _ in range(2):
                found = await reader.start(handle, action)
                assert found.status == UNAVAILABLE
            (again,) = bodies(node)
            assert again == known

    run(scenario())
