"""`spindle heal`: keeps directories within limits, round by round, for as long as it runs."""
