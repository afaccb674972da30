"""Executes plans on a running cluster, in rounds that a later run can continue."""
