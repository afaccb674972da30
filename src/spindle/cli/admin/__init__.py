"""The commands for people that show and change what a cluster stores, one module per noun."""
