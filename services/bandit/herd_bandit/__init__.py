"""The bandit service: hands out a temperature per episode and learns from returns which ones pay. Runs without torch."""
