"""Consensus: replicates opaque byte entries for a group. Imports nothing of qm."""

import os

# gRPC reads these variables once, when it is loaded: import this package before grpc.
#
# gRPC 1.85's new engine moves every read and write through threads of its own. For a frame of
# 64 KiB there and back the older one needs a third less processor time (245 us instead of 374) and
# latency (270 us from write to answer instead of 372); tests/bench/raft.py measures the whole.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
# gRPC writes lines of its own to stderr whenever a peer dies, among those of the process's log.
# The errors that matter are raised by calls, and the callers log and count them.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
