"""One folder per conversation: its messages and its client."""
