"""The command line `qm`: one module per noun, and the parts they print with. May import
everything; a command imports what it needs when it runs.
"""
