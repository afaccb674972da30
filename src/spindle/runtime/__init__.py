"""The rim: listeners, drivers of the cores, one I/O thread per log directory, timers, wiring.

The only package that knows asyncio and threads.
"""
