"""Clusters of real processes, tortured: ``python -m tests.nodes.torture`` (``make torture``)."""
