"""Quorate: a replicated queue manager cluster that speaks the MSMQ binary protocol."""
