"""The options that sources, streams, exports and the sink share: one parser for each of them.

A value is accepted where Spark's built-in `kafka` source accepts it, unless that source would use
another value than the one that is written: an offset beyond 64 bits, a fraction, null, or one of
two entries for the same partition. Such values are refused.
"""
