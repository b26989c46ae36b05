"""What a replica watches, and tells its operator."""
