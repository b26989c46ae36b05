"""The packages that a build of a node consists of."""

from pathlib import Path
from typing import Final

import qm
import raft

PACKAGE_FOLDERS: Final = (Path(qm.__path__[0]), Path(raft.__path__[0]))
"""The folders of its Python packages that this process runs from."""
