"""What every service is made of, once: start and end, signals, allocator, metrics and context, serving from a socket, whole files."""
