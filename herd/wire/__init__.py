"""The messages between processes (docs/messaging.md). No other package uses ZeroMQ or MessagePack."""
