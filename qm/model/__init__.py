"""[MS-MQDMPR] as pure functions over an abstract key-value state (qm/model/design.md)."""
