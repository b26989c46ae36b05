"""Security descriptors and access checks; hashes, signatures and ciphers follow. Pure.

`sid` and `descriptor` hold [MS-DTYP] 2.4 as bytes and values, `access` decides on access. May
import `qm.wire` and `qm.names`.
"""
