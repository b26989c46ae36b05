"""Whether a message is too old to be sent or taken [MS-MQQB 3.1.7.1.2, 3.1.5.8]."""

from qm.wire.limits import TIME_INFINITE_S


def is_expired(now_utc_s: int, sent_time_s: int, time_to_reach_queue_s: int) -> bool:
    """Whether TimeToReachQueue has passed; all arguments in seconds.

    SentTime is the sender's clock. MQ-A28: the difference is signed, so a message "from the future"
    has not expired.
    """
    if time_to_reach_queue_s == TIME_INFINITE_S:
        return False
    return now_utc_s - sent_time_s > time_to_reach_queue_s
