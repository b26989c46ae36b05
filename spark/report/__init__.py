"""Output of an audit: tallies, flow, metrics, a page. May import `spark.archive`."""
