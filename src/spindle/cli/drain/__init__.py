"""`spindle drain`: empties a broker or a log directory, round by round."""
