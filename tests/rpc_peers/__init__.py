"""Third parties' RPC clients against a node: `make test-rpc`."""
