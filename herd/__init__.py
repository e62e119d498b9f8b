"""The library that the services are made of. It imports no service."""
