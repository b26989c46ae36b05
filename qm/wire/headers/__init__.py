"""Headers of packets: one module per header of [MS-MQMQ] 2.2.19 and 2.2.20. May import `structures`
and the small modules of `qm.wire`.
"""
