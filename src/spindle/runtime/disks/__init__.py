"""The I/O thread of a log directory, its lock, and work that runs beside the thread."""
