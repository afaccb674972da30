"""`spindle balance`: fills all log directories equally."""
