"""The command line: `spindle` with one module for each tool."""
