"""`spindle drain`: empties a broker or a log directory."""
