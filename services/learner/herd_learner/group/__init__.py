"""Learner shards in lockstep: how N processes meet, agree on every turn, and detect a lost shard."""
