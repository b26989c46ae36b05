"""The same work on other replicated queues: Debian's rabbitmq-server and nats-server."""
