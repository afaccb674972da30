"""The files of a log directory other than segments: their names, decoding and encoding.

The log, the pipeline, the audit and `dump-log` share these modules, so that each format is
implemented once.
"""
