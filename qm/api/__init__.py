"""The control and data planes over gRPC, on every node (DESIGN section 2)."""
