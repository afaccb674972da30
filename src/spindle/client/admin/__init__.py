"""Administration of a cluster over the blocking client: one module per subject.

The refusal of one element of a request is a value (`ApiError` or None), so that callers can report
every element; only the refusal of a whole request is raised. Its text comes from the broker, or is
Kafka's text for the code if the broker sent none (`refusals`).
"""
