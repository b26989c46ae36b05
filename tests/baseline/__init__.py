"""The same scenarios on stock raftos 0.2.6 and on our own core; see docs/raftos.md."""
