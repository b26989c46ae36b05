"""What an archive holds: ranges, files, bases, tables, and how it stands. May import
`spark.findings`.
"""
