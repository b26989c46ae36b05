"""The working state during apply: tables, decoded rows, names of queues. May import `values`."""
