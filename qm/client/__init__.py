"""The data plane for applications, in Python. May import the stubs, `qm.wire` and `qm.names`."""
