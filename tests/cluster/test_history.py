"""The history of events outlives the nodes that it tells of."""

from qm.model.queries import EventInfo, list_events
from qm.model.values.elements import EventKind
from tests.cluster.harness import HarnessNode, cluster, run, until


def told(node: HarnessNode, *kinds: EventKind) -> list[EventInfo]:
    return list_events(node.cluster.view, kinds=kinds, limit=1_000)[0]


def said(node: HarnessNode) -> list[tuple[str, str]]:
    events = told(node, EventKind.MEMBER)
    return [(one.event.node, one.event.name) for one in events]


def test_the_history_survives_that_everybody_is_killed() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            follower, _ = await nodes.followers()
            await follower.service.operations.drain_here(True)
            leader = await nodes.leader()
            await until(lambda: (follower.name, "drain") in said(leader), lambda: said(leader))
            before, members_before = told(leader), len(said(leader))
            names = [node.name for node in nodes.up]
            for name in names:
                await nodes.kill(name)
            for name in names:
                await nodes.restart(name)
            fresh = await nodes.leader()
            await until(
                lambda: {(name, "started") for name in names} <= {*said(fresh)[members_before:]},
                lambda: said(fresh),
            )
            await nodes.agree()
            assert told(fresh)[: len(before)] == before
            assert all(told(node) == told(fresh) for node in nodes.up)
            assert told(fresh, EventKind.LEADERSHIP)[-1].event.node == fresh.name

    run(scenario())
