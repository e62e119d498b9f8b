"""Requests and answers: the envelope, the codec, retries, and what every server checks."""
