"""Windows programs' way in: connection-oriented DCE/RPC with its security, and the interfaces of
[MS-MQRR] and [MS-MQMR] on it. Stands on `qm.api`, whose lines of readers and proposals it shares.
"""
