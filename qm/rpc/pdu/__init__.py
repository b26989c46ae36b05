"""PDUs of connection-oriented DCE/RPC [C706 12.6]: bytes to values and back. Pure."""
