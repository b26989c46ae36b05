"""Consensus: replicates opaque byte entries for a group. Imports nothing of qm."""

import os

# Read once, when gRPC is loaded: whoever loads it, too, imports this package first.
#
# gRPC 1.85's new engine moves every read and write through threads of its own; the older one needs
# a third less processor time and latency for a frame of 64 KiB there and back: 245 us instead of
# 374, 270 us from write to answer instead of 372 (tests/bench/raft.py measures the whole).
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
# It writes lines of its own on stderr whenever a peer dies, between those of the process's log.
# What matters of it comes up as an error of a call, and is logged and counted by who called.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
