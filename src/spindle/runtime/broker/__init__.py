"""Drive a broker: its life cycle, its metadata, its followers, its regular work."""
