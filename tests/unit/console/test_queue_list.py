"""The console's list of queues: its columns, and its order."""

import re

from qm.client.message import Message
from qm.console.page_group import age
from tests.unit.client.world import Clients, scenario
from tests.unit.console.world import browser, sign_in


@scenario()
async def test_queues_are_listed_by_depth_bytes_age_and_quota(made: Clients) -> None:
    for letter, size, count in (("a", 3_000, 1), ("b", 10, 3), ("c", 0, 0)):
        path = f"QUORATE\\private$\\row-{letter}"
        await made.create(path)
        async with made.client() as client:
            await client.send(path, *[Message(body=bytes(size))] * count)
    await made.limit("QUORATE\\private$\\row-b", quota=4)
    async with browser(made) as found:
        await sign_in(made, found)

        async def rows(query: str) -> str:
            status, text = await found.get(f"/queues?filter=row-{query}")
            assert status == 200
            return "".join(re.findall(r">QUORATE\\private\$\\row-([a-z])<", text))

        assert await rows("") == "abc"
        assert await rows("&sort=name&way=down") == "cba"
        assert await rows("&sort=messages") == "bac"
        assert await rows("&sort=bytes") == "abc"
        assert await rows("&sort=bytes&way=up") == "cba"
        assert (await rows("&sort=age&way=up"))[0] == "c"
        assert (await rows("&sort=quota"))[0] == "b"
        _, text = await found.get("/queues?filter=row-&sort=age")
        assert re.findall(r'aria-sort="([a-z]+)"><a href="[^"]*sort=age&amp;way=up"', text) == [
            "descending"
        ]
        assert text.count("aria-sort") == 1
        assert "sort=messages&amp;way=down" in text
        assert re.search(r"of 4\.0 KiB \([0-9]+ %\)", text)
        assert re.search(r'<td class="number">[0-9]+ s</td>', text)
        status, text = await found.get("/queues?filter=row-&first=2")
        assert (status, ">QUORATE\\private$\\row-a<" in text) == (200, False)


def test_ages_have_two_units() -> None:
    known = {-1: "0 s", 59: "59 s", 61: "1 min 1 s", 7_200: "2 h 0 min", 90_000: "1 d 1 h"}
    assert {seconds: age(seconds) for seconds in known} == known
