"""The client side of the protocol without I/O: it makes requests and reads answers.

A transport (blocking sockets in `blocking`, asyncio in the runtime) moves the bytes. All other
decisions of a client about its connections and the cluster are made here.
"""
