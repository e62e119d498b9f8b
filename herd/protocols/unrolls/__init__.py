"""The stream of unrolls from actors to a learner: messages, arrays, credit, and the actor's client."""
