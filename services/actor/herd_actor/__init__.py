"""Actor: steps environments with a copy of the policy and streams unrolls to the learner."""
