"""PySpark jobs over the archived log: audit, compaction, restore (DESIGN section 5). May import
`qm.archive` and the parts of `qm.store` that read its formats.
"""
