"""The data plane for applications, in Python."""
