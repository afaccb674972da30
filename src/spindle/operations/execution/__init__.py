"""Carries out plans on a running cluster, in rounds with which a later run can go on."""
