"""The command line `qm`: one module per noun, and shared parts for output. May import everything; a
command imports what it needs when it runs.
"""
