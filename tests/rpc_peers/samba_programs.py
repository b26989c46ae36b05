"""smbtorture's tests of any RPC server against a node.

rpcclient's epmlookup is left out: it asks on after the nil handle that ends a search, from the
beginning. Its epmmap asks for LSARPC.
"""

import asyncio
from pathlib import Path
from typing import Final

CREDENTIALS: Final = "QUORATE/alice%pw"
TESTS: Final = (
    "rpc.scanner",
    "rpc.mgmt",
    "rpc.epmapper.epmapper.Lookup_terminate_search",
    "rpc.bind.assoc_group_handles_external",
)
"""Of rpc.epmapper the others register endpoints, which is refused, or want the status of an empty
portion with the last entries, which impacket takes for an error; of rpc.bind and rpc.altercontext
the others call LSARPC."""
LIMIT_S: Final = 120.0


async def output_of(*command: str) -> str:
    """Run a command; return what it printed. Raises AssertionError."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(LIMIT_S):
        raw, _ = await process.communicate()
    text = raw.decode(errors="replace")
    assert process.returncode == 0, f"{' '.join(command)}: {process.returncode}\n{text}"
    return text


async def check(host: str, folder: Path) -> dict[str, int]:
    """Run everything; return how many passed. Raises AssertionError."""
    settings = folder / "smb.conf"
    settings.write_text(
        "[global]\n"
        + "".join(
            f"  {name} = {folder}\n"
            for name in ("private dir", "lock directory", "state directory", "cache directory")
        )
    )
    common = ("-s", str(settings), "-U", CREDENTIALS)
    for name in TESTS:
        text = await output_of("smbtorture", *common, f"ncacn_ip_tcp:{host}", name)
        assert "success: " in text, text
        print(f"smbtorture {name}: passed")
    return {"smbtorture_passed_count": len(TESTS)}
