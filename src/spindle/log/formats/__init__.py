"""The files of a log directory but the segments: their names, and bytes to values and back.

The log, the pipeline and `dump-log` use these modules, so that each format stands once.
"""
