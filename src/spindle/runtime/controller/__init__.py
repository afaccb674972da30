"""Drives `spindle.controller`: the active controller's side, and every node's way to it."""
