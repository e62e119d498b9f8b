"""The only door to gymnasium and ale-py: suites of batched environments and their score tables."""
