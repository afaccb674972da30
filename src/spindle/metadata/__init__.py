"""Cluster metadata: feature levels, records -> immutable images and deltas, placement.

Pure: no clock, no randomness but the injected one, no I/O. Controller and broker replay the same
records with the same code.
"""
