"""`spindle balance`: fills all log directories equally, round by round."""
