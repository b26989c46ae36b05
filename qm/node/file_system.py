"""The file system below the log, the blob files and the reserve, and how to replace it.

`raft.log.files` defines the interface; no configuration key selects another. Imports neither the
store nor the node, so that it can be imported before them.
"""

from raft.log import disk
from raft.log.disk import DiskDirectory, DiskFile
from raft.log.files import Buffer

__all__ = ["Buffer", "DiskDirectory", "DiskFile", "replace_file_system"]


def replace_file_system(directory: type[DiskDirectory]) -> None:
    """Have nodes of this process open their files with `directory`.

    Call it before `qm.node.process` is imported: its modules bind the name when they are imported.
    """
    vars(disk)["DiskDirectory"] = directory
