"""Drives `spindle.controller`: the active controller, and each node's channel to it."""
