"""Forecasts: how fast replicas and directories grow, when directories are full, plans for it."""
