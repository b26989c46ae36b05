"""Connections and associations of DCE/RPC [C706 9, MS-RPCE 3.3.1] as sans-IO state. Pure."""
