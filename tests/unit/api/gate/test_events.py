"""EventLog: the last events are kept and can be followed."""

import asyncio

from qm.api.gate.events import EventLog


def test_events_are_kept_up_to_a_number_and_followed() -> None:
    async def scenario() -> None:
        log = EventLog(lambda: 42, kept_max=3)
        for k in range(5):
            log.add("control", f"e{k}", "x" * 1_000, details={"a": "b"})
        assert [event.number for event in log.after(0)] == [3, 4, 5]
        assert [event.number for event in log.after(4)] == [5]
        assert log.after(5) == []
        assert len(log.after(4)[0].text) == 500

        followed: list[str] = []

        async def follow() -> None:
            async for event in log.read(4, follow=True):
                followed.append(event.name)

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        log.add("control", "news", "")
        for _ in range(10):
            await asyncio.sleep(0)
        assert followed == ["e4", "news"]
        following.cancel()

    asyncio.run(scenario())
