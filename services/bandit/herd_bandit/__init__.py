"""The bandit service: chooses a temperature for each game, and learns from returns which temperatures are best. Needs no torch."""
