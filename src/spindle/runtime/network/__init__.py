"""What clients connect to: listeners, connections, limits, dispatch to handlers."""
