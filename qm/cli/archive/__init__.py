"""`qm audit` and `qm compact`: the jobs of `spark`, in this process. May import `qm.cli.lib` and
`spark`.
"""
