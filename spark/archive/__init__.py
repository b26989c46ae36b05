"""Contents of an archive: ranges, files, bases, tables, and its state. May import
`spark.findings`.
"""
