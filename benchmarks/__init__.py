"""Benchmarks, each a command: crescando and its peers side by side."""
