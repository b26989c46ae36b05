"""Structures inside headers: identifiers, queue names, keys, certificates, texts. May import the
small modules of `qm.wire`.
"""
