"""The command line `qm`: one module per noun, and the parts they print with."""
