"""The Grafana dashboard, written as code. ``python -m observability`` writes it to ``helm/herd/files``, beside the rules of Prometheus.

Nothing here runs in a process of Herd.
"""
