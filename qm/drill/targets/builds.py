"""Two builds of the product side by side, and which of them a node's process runs.

A build is a folder that is first on Python's path: `pip install --no-deps --target FOLDER` of a
wheel creates one. Without such a folder the second build is this one with a newer apply version; to
the cluster this looks like an upgrade that changes the state's behaviour.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Final

from qm.drill.targets.ability import Refused
from qm.drill.targets.target import TargetFailed
from qm.model.values.limits import APPLY_VERSION
from qm.node.packages import PACKAGE_FOLDERS

_LIMITS: Final = Path("qm", "model", "values", "limits.py")
_MARK: Final = Path("qm", "__init__.py")
"""A file that every build has, whatever its other modules."""
_VERSION_LINE: Final = re.compile(rf"^APPLY_VERSION: Final = {APPLY_VERSION}$", re.MULTILINE)


def make_next_build(folder: Path) -> None:
    """Copy this build into a folder, with the next apply version. Raises TargetFailed, OSError."""
    shutil.rmtree(folder, ignore_errors=True)
    for source in PACKAGE_FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, folder / source.name, ignore=ignored)
    raise_apply_version(folder)


def raise_apply_version(folder: Path) -> None:
    """Raise the apply version of the build in a folder above this one's. Raises TargetFailed."""
    limits = folder / _LIMITS
    line = f"APPLY_VERSION: Final = {APPLY_VERSION + 1}"
    text, found = _VERSION_LINE.subn(line, limits.read_text(encoding="utf-8"))
    if found != 1:
        raise TargetFailed(f"{limits} names no apply version: is it a build of this product?")
    limits.write_text(text, encoding="utf-8")


class Builds:
    """Tracks which nodes run the other build."""

    def __init__(self, folder: Path, other: Path | None) -> None:
        """`folder`: for a build made here; `other`: an existing build. Raises Refused."""
        if other is not None and not (other / _MARK).is_file():
            raise Refused(
                f"{other} holds no build: `pip install --no-deps --target {other} WHEEL` makes one"
            )
        self._made = folder
        self._other = other
        self._nodes: set[str] = set()

    def upgrade(self, node: str) -> None:
        """Make a node run the other build from its next start. Raises TargetFailed, OSError."""
        if self._other is None:
            make_next_build(self._made)
            self._other = self._made
        self._nodes.add(node)

    def is_other(self, node: str) -> bool:
        """Return whether a node runs the other build from its next start."""
        return node in self._nodes

    def downgrade(self, *nodes: str) -> None:
        """Make nodes run this build again from their next start."""
        self._nodes.difference_update(nodes)

    def environment(self, node: str) -> dict[str, str]:
        """Return the environment variables that make a node's process run its build."""
        if node not in self._nodes:
            return {}
        path = [str(self._other), *filter(None, [os.environ.get("PYTHONPATH")])]
        # Without the second, the folder in which the drill was started would come first.
        return {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}
