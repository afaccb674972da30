"""One partition's log and the log directory it lives in, in Kafka's own files.

Synchronous code over the `FileSystem` port. Everything of one directory is used by one I/O thread.
"""
