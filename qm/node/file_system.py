"""The file system below the log, the blob files and the reserve, and how to replace it.

`raft.log.files` is the seam; a node has no switch for it. Imports neither the store nor the node,
so that it can be imported before them.
"""

from raft.log import disk
from raft.log.disk import DiskDirectory, DiskFile
from raft.log.files import Buffer

__all__ = ["Buffer", "DiskDirectory", "DiskFile", "replace_file_system"]


def replace_file_system(directory: type[DiskDirectory]) -> None:
    """Have nodes of this process open their files with `directory`.

    Only before `qm.node.process` is imported: its modules take the name when they are.
    """
    vars(disk)["DiskDirectory"] = directory
