"""Whole packets: parsed, written, framed, peeked into, patched, judged, described. May import
`headers` and `structures`.
"""
