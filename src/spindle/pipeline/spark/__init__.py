"""The Spark session: its Java, settings, start, and what its Python processes need."""
