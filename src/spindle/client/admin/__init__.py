"""Administration of a cluster over the blocking client: one module per subject.

What one element of a request was refused with is a value (`ApiError` or None), so that callers can
report every element; only a request refused as a whole raises. A refusal's text is the broker's, or
Kafka's own for the code where the broker sent none (`refusals`).
"""
