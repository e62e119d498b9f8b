"""The shared parts of all services: start and end, signals, allocator, metrics, context, serving from a socket, atomic files."""
