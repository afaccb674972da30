"""Serving requests: contexts, handlers, forwarding to the controller and quotas."""
