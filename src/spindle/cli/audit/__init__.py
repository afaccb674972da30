"""`spindle audit`: find damage in log directories, and how to repair it."""
