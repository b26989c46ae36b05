"""What Windows programs need: their accounts, and calls of RPC interfaces for diagnosis."""
