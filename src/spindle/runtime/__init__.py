"""Listeners, drivers of the pure packages, I/O threads of log directories, timers, wiring.

This is the only package that uses asyncio and threads.
"""
