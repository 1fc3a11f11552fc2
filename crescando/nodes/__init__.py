"""Clusters of operating-system processes: a node is one of them, the launcher starts and ends them."""
