"""The active controller's decisions: (image, request, now) -> records and a response.

Pure: nothing here appends, waits or looks at a clock. A decision changes the cluster only through
its records, which every node replays with the same code (`spindle.metadata`).
"""
