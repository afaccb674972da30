"""Names and formats of the small files in a log directory: bytes to values and back."""
