"""`spindle heal`: keeps directories within limits, for as long as it runs."""
