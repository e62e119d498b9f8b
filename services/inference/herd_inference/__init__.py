"""The inference service: acts for many actors at once, on batches of the rows that they send."""
