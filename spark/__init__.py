"""PySpark jobs over the archived log: audit, compaction, restore (DESIGN section 5). May import
`qm.archive` and what of `qm.store` reads its formats.
"""
