"""Remote read [MS-MQRR]: programs on Windows read from this cluster's queues."""
