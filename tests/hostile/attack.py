"""One attacker, a process on a host of its own: `python -m tests.hostile.attack CLASS VICTIM`.

`VICTIM` is a file with a `Victim`. Prints one JSON object at the end: the number of inputs. Ends
by itself after the victim's seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from random import Random

import msgspec
import uvloop

from tests.hostile.calls import dead_letters, fuzz_grpc, half_sent, slow_streams
from tests.hostile.console import console
from tests.hostile.msmq import (
    bulk_4mib,
    byte_wise,
    counters_near_end,
    dead_destinations,
    fuzz_1801,
    fuzz_udp,
    many_guids,
    many_names,
    slow_readers,
    tiny_missing,
)
from tests.hostile.objects import dcom
from tests.hostile.rpc import rpc
from tests.hostile.victim import Attack, Count, Victim
from tests.hostile.web import fuzz_http


async def nothing(victim: Victim, chance: Random, count: Count) -> None:
    """Leave the cluster and its senders alone: what the machine itself costs them."""
    del victim, chance
    count(1)
    await asyncio.Event().wait()


CLASSES: dict[str, tuple[Attack, ...]] = {
    "nothing": (nothing,),
    "fuzz_1801": (fuzz_1801,),
    "fuzz_grpc": (fuzz_grpc,),
    "fuzz_http": (fuzz_http,),
    "fuzz_udp": (fuzz_udp,),
    "console": (console,),
    "rpc": (rpc,),
    "dcom": (dcom,),
    "many_guids": (many_guids,),
    "many_names": (many_names,),
    "dead_destinations": (dead_destinations,),
    "half_sent": (half_sent,),
    "slow_readers": (slow_readers, slow_streams),
    "byte_wise": (byte_wise,),
    "bulk_4mib": (bulk_4mib,),
    "tiny_missing": (tiny_missing,),
    "dead_letters": (dead_letters,),
    "counters_near_end": (counters_near_end,),
}
"""Each class of attack: what happens at the same time."""


async def attack(name: str, victim: Victim) -> int:
    """Attack for the victim's seconds; return the number of inputs."""
    sent = 0

    def count(number: int) -> None:
        nonlocal sent
        sent += number

    chance = Random(f"{victim.seed}/{name}")
    tasks = [asyncio.ensure_future(each(victim, chance, count)) for each in CLASSES[name]]
    done, _ = await asyncio.wait(tasks, timeout=victim.seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    return sent


def main(name: str, path: str) -> None:
    """Run one attack."""
    victim = msgspec.json.decode(Path(path).read_bytes(), type=Victim)

    async def attack_and_vanish() -> None:
        print(json.dumps({"inputs": await attack(name, victim)}), flush=True)
        # Hundreds of connections need no good-bye, and some would not hear of a cancellation.
        os._exit(0)

    uvloop.run(attack_and_vanish())


if __name__ == "__main__":
    main(*sys.argv[1:3])
