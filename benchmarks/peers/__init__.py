"""The rivals of the ordering path, started, loaded, read back and stopped by the benchmark."""
