"""What operators see of a process: the metric table, JSON logs, rate-limited log lines. May
import the pure layers.
"""
