"""`qm drill` and `qm demo`. May import `qm.cli.lib`, `qm.cli.packets`, `qm.drill` and `qm.load`."""
