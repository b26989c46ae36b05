"""Security descriptors and access; hashes, signatures and ciphers follow. Pure.

`sid` and `descriptor` hold [MS-DTYP] 2.4 as bytes and values, `access` decides. May import
`qm.wire` and `qm.names`.
"""
