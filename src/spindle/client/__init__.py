"""The client side of the protocol without I/O: what to send, and what an answer means.

A transport (blocking sockets in `wire`, asyncio in the runtime) moves the bytes; everything else
about a connection and a cluster as seen from outside is decided here.
"""
