"""The exchange of returns and temperatures with the bandit."""
