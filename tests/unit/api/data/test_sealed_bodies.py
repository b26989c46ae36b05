"""What a reader is told of a stored body that does not open."""

from unittest import mock

import grpc
import pytest

from qm.store.bodies.body_places import BodyDamaged, BodyUnopened
from tests.cluster.harness import run
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import bodies, refused, world


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BodyDamaged("it was altered"), grpc.StatusCode.DATA_LOSS),
        (BodyUnopened("this node has no sealing key"), grpc.StatusCode.UNAVAILABLE),
    ],
    ids=["damaged", "no key"],
)
def test_a_body_that_does_not_open_is_kept_for_who_can(
    error: BodyDamaged, code: grpc.StatusCode
) -> None:
    """A receive that fails with it is answered under its number as soon as the body opens."""

    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, b"a")
            queue = await client.open(ORDERS)
            seals = (await made.leader()).node.cluster.seals
            number = client.next()
            with mock.patch.object(seals, "opened", side_effect=error):
                with refused(code):
                    await client.peek(queue)
                with refused(code):
                    await client.receive(queue, request=number)
            assert bodies(await client.receive(queue, request=number)) == [b"a"]

    run(scenario())
