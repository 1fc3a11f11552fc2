"""Whole programs that use crescando, to read and to run: ``python -m examples.NAME``."""
