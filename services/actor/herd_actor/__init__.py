"""The actor: steps environments with a copy of the policy, and sends unrolls to the learner."""
