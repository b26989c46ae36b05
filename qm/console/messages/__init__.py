"""Pages of messages: shown, sent, received, copied, moved. May import what all pages share."""
