"""What operators see of a process: the table of metrics, JSON logs, rate-limited log lines. May
import the pure layers.
"""
