"""Verifying signatures and decrypting bodies at the edge."""
