"""The error of our own callers; peers cause events, never exceptions."""


class SessionMisuse(Exception):
    """The owner of a session, link or table broke its contract; the text says what to do."""
