"""Spark: types, filters, reads, loads, faults."""
