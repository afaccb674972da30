"""From committed to published metadata: delivery to listeners, images and deltas.

The chain, in order: `feed` hands committed batches to each `QuorumListener` (`delivery` knows how
far each one is), `loader` replays them into an image and a delta, `publishers` gives both to
the parts of the node.
"""
