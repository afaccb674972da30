"""Record batches into Arrow: the row schema of Spark's `kafka` source and the numba kernel.

Nothing here imports Spark; numba and NumPy are imported with the first record that is decoded.
"""

from spindle.pipeline.extra import ARROW, require

require(ARROW)
