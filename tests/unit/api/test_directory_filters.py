"""Filters of the directory, as callers of the API write them."""

import pytest

from qm.pb import control_pb2 as pb
from tests.cluster.harness import run
from tests.unit.api.test_control import Operator, number, text
from tests.unit.api.world import world

FOUND = {"": "b", "==": "b", "!=": "ac", "<": "a", ">": "c", "<=": "ab", ">=": "bc"}


@pytest.mark.spec("DM-3.1.7.1.20-02")
def test_each_operator_finds_what_it_says() -> None:
    async def scenario() -> None:
        async with world() as made, made.channel(await made.leader()) as channel:
            operator = Operator(channel)
            for place, name in enumerate("abc", start=1):
                values = {
                    "name": text(name),
                    "intra_site_replication_interval": number(place),
                }
                await operator.directory.PutObject(
                    pb.PutObjectRequest(object_class="site", attributes=values)
                )
            # One attribute has an index, and the other has none.
            wanted = (("name", text("b")), ("intra_site_replication_interval", number(2)))
            for attribute, value in wanted:
                for sign, found in FOUND.items():
                    one = pb.DirectoryFilter(attribute=attribute, operator=sign, value=value)
                    request = pb.ListObjectsRequest(object_class="site", filters=[one])
                    reply = await operator.directory.ListObjects(request)
                    names = sorted(each.attributes["name"].text for each in reply.objects)
                    assert "".join(names) == found, (attribute, sign)

    run(scenario())
