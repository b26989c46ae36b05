"""Replay of the log in tasks, cut at checkpoints: the only part that runs apply. May import
`spark.archive` and `spark.engine`.
"""
