"""The processes. They talk over the wire and never import each other."""
