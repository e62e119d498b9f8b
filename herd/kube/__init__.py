"""Access to Kubernetes: the pods of a release and their metrics. Only this package imports kubernetes."""
