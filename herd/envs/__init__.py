"""Suites of batched environments and their score tables. Only this package imports gymnasium and ale-py."""
