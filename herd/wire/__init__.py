"""What the processes say to each other: the only door to ZeroMQ and MessagePack (docs/messaging.md)."""
