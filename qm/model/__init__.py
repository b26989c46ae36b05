"""[MS-MQDMPR] as pure functions over an abstract key-value state (qm/model/design.md). May
import `qm.security`, `qm.wire` and `qm.names`, and nothing that uses time, randomness or I/O.
"""
