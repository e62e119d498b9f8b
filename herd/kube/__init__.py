"""Access to Kubernetes: a release's workloads, its pods and their metrics. Only this package imports kubernetes."""
