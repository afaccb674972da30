"""The command line: `spindle` with one module per tool. Every command is thin."""
