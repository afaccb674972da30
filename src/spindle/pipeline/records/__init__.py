"""Decode record batches into Arrow: the rows of Spark's `kafka` source, by a numba kernel.

Nothing here imports Spark; numba and NumPy are imported with the first record that is decoded.
"""

from spindle.pipeline.optional_dependencies import ARROW, require

require(ARROW)
