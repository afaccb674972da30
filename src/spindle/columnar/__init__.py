"""Record batches as columns, and the segments and indexes that hold them, without Spark.

`headers` has the fields of batch headers as NumPy columns, `decoder` the records as Arrow (the rows
of Spark's `kafka` source); `segment_log` reads the segments of a log directory. Its users are
`spindle.audit` (NumPy alone, if the walks were compiled) and `spindle.pipeline` (also pyarrow, and
numba for the kernels). A module imports only what it needs; numba is imported with the first record
that is decoded.
"""
