"""`spindle plan`: where replicas should be, and the rounds of moves that bring them there."""
