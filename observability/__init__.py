"""What an operator sees of Herd: a Grafana dashboard, recording rules and alerts, written as code.

``python -m observability`` writes them to ``helm/herd/files``. Nothing here runs in a process of Herd.
"""
