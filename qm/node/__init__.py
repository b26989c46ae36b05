"""One process: configuration, wiring, lifecycle."""

import raft as raft  # before anything here loads gRPC, to which it says how to run
