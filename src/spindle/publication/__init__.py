"""From committed to published metadata: delivery to listeners, images and deltas.

The chain, in order: `feed` delivers committed batches to each `QuorumListener` and keeps its
position, `loader` replays them into an image and a delta, `publishers` gives both to the parts of
the node.
"""
