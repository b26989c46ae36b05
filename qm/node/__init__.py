"""One process: configuration, wiring, lifecycle. May import everything below `qm.load`, and
`raft`.
"""

import raft as raft  # before anything here loads gRPC, to which it says how to run
