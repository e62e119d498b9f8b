"""The only door to Kubernetes: a release's pods, what they say about themselves, scaling and logs. Imports no other room."""
