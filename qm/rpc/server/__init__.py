"""The asyncio side of RPC: listening ports, connections, and calls given to implementations."""
