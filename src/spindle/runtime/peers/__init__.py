"""Connections to other nodes of the cluster: of the quorum, of fetchers, to the controller."""
