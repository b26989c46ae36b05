"""MSMQ packets: bytes to values and back (MS-MQMQ, MS-MQQB). Pure."""
