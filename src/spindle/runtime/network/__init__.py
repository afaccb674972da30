"""The listeners of a node: connections, limits, dispatch to handlers."""
