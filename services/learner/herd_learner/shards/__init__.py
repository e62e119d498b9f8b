"""Learner shards in lockstep: how N processes find each other, agree on every turn, and notice that one is gone."""
