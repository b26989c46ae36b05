"""What building images needs of this machine, and where it happens."""

import os
import shutil
from typing import Final

from tests.image.compose import ROOT

FOLDER: Final = ROOT / "build" / "image"
EXIT_STATUS_UNAVAILABLE: Final = 69
_TOOLS: Final = ("buildah", "debootstrap", "ip", "nft")


def missing_here() -> str:
    """Return what this machine lacks; empty: nothing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"these tools: {', '.join(missing)}"
    return "" if os.geteuid() == 0 else "root"
