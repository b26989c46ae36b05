"""Security descriptors and access, hashes, signatures and ciphers of messages. Pure.

`sid` and `descriptor` hold [MS-DTYP] 2.4 as bytes and values, `access` decides on access.
`signature_input` says what a signature covers, `hashes` and `signatures` make and verify it;
`body_ciphers` encrypt bodies, `session_keys` carry their keys, `body_encryption` chooses both;
`certificates` reads those of people, `directory` says who others are, `providers` names providers.
`body_seals` seals bodies at rest.
`own_keys` says what keys this queue manager has, `key_ring` how they are sealed.
May import `qm.wire` and `qm.names`.
"""
