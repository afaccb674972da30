"""`spindle up`: a cluster on this machine in one command, to try things out."""
