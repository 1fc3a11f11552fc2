"""What Spark imports to learn of ``format("crescando")``: it looks into every package ``pyspark_*``."""
