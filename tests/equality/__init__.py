"""Whether two trees compute the same."""
