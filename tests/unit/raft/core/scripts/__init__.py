"""Scenarios as text: a verb, a separator, the transcript. See `interaction`."""
