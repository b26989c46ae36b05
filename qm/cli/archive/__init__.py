"""`qm audit` and `qm compact`: the jobs of `spark` within this process. May import `qm.cli.lib` and
`spark`.
"""
