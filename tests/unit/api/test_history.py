"""The history over the API: control calls are in it by the entries that carry them out."""

import grpc

from qm.model.values.limits import VERSION_OF_EVENTS
from qm.pb import control_pb2 as pb
from tests.cluster.harness import run
from tests.unit.api.test_control import Operator, text
from tests.unit.api.world import eventually, refused, world

NEW = r".\private$\new"


def test_all_nodes_tell_the_same_history_of_calls() -> None:
    async def scenario() -> None:
        async with world(3) as made:
            leader = await made.leader()
            one, other = await made.followers()
            async with (
                made.channel(leader) as at_leader,
                made.channel(one) as here,
                made.channel(other) as there,
            ):
                first, second = Operator(here), Operator(there)

                async def version() -> int:
                    status = await first.cluster.GetStatus(pb.GetStatusRequest())
                    found: int = status.apply_version
                    return found

                await eventually(version, lambda found: found >= VERSION_OF_EVENTS)
                new = pb.CreateQueueRequest(path_name=NEW)
                await first.queues.CreateQueue(new)
                stale = pb.SetQueueRequest(
                    queue=pb.QueueName(name=NEW), changes={"label": text("x")}, if_version=99
                )
                with refused(grpc.StatusCode.ABORTED):
                    await second.queues.SetQueue(stale)
                wanted = pb.ListEventsRequest(kinds=["control"])
                told = [
                    list((await Operator(channel).cluster.ListEvents(wanted)).events)
                    for channel in (at_leader, here, there)
                ]
                assert told[0] == told[1] == told[2]
                done, again = told[0]
                assert (done.name, done.node, done.principal) == (
                    "CreateQueue", one.name, "loopback"
                )  # fmt: skip
                assert done.text == "CreateQueue by loopback: OK"
                assert again.text == "SetQueue by loopback: MQ_ERROR_PROPERTIES_CONFLICT"
                assert again.details["code"] == "MQ_ERROR_PROPERTIES_CONFLICT"
                assert done.details["path_name"] == NEW
                assert done.index < again.index

                last = pb.ListEventsRequest(kinds=["control"], limit=1, latest=True)
                reply = await first.cluster.ListEvents(last)
                assert (list(reply.events), reply.has_more) == ([again], True)
                with refused(grpc.StatusCode.INVALID_ARGUMENT, field="kinds"):
                    await first.cluster.ListEvents(pb.ListEventsRequest(kinds=["x" * 1_000]))

                following = second.node.StreamEvents(
                    pb.StreamEventsRequest(
                        cluster=True, after=done.number, follow=True, kinds=["control"]
                    )
                )
                assert (await following.read()).number == again.number
                delete = pb.DeleteQueueRequest(queue=pb.QueueName(name=NEW))
                await first.queues.DeleteQueue(delete)
                assert (await following.read()).name == "DeleteQueue"
                # What is no command for the state is brought in by its node, and nothing else is.
                for operator in (first, second):
                    await operator.cluster.MarkAudit(pb.MarkAuditRequest())
                    assert (await following.read()).name == "MarkAudit"
                following.cancel()

    run(scenario())
