"""The samples of docs/client.md for people who know System.Messaging, run in their order."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path

from qm.client.blocking import BlockingClient
from tests.unit.client.world import Clients, scenario

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
BEGINS = "## From System.Messaging"
SAMPLES_MIN = 7


def samples() -> list[str]:
    """Return the indented blocks of the section; blank lines belong to the block around them."""
    section = PAGE.read_text(encoding="utf-8").partition(BEGINS)[2].partition("\n## ")[0]
    blocks: list[list[str]] = [[]]
    for line in section.splitlines():
        if line.startswith("    ") or (not line and blocks[-1]):
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [textwrap.dedent("\n".join(block)) for block in blocks if any(block)]


@scenario()
async def test_each_sample_runs(made: Clients) -> None:
    for name, is_transactional in (("orders", False), ("answers", False), ("invoices", True)):
        await made.create(f"QUORATE\\private$\\{name}", is_transactional=is_transactional)
    found = samples()
    assert len(found) >= SAMPLES_MIN

    def program() -> int:
        with BlockingClient(made.endpoints, tls=made.tls) as client:
            names = {"client": client}
            for sample in found:
                exec(compile(sample, str(PAGE), "exec"), names)  # our own page
            return len(client.open_queue(r".\private$\invoices").receive_many(9, 5))

    assert await asyncio.to_thread(program) == 2
