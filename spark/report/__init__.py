"""What an audit says: tallies, flow, metrics, a page. May import `spark.archive`."""
