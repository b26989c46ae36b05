"""Verifying signatures and decrypting bodies of messages that arrive ([MS-MQQB] 3.1.5.8.3).

`examination` is what one message costs, pure; `examiner` knows keys, people and what is cached;
`verification` does it in the order of each session, without keeping the event loop from others.
May import `qm.security`, `qm.model`, `qm.wire` and `qm.edge`'s batches and limits.
"""
