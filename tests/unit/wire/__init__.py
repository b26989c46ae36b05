"""Packets: values, streams, raw fields."""
