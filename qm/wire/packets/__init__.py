"""Whole packets: parsing, writing, framing, peeking, patching, checking, describing. May import
`headers` and `structures`.
"""
