"""The sink of `format("spindle")`: rows of Spark become records of topics, exactly once.

Each task writes its rows in a transaction of its own and leaves it open. The driver records in the
cluster which transactions make up the batch (`state`, `state_store`), and then commits them
(`driver`). A run that replays the batch finds that decision and finishes it (`task`).
"""
