"""`spindle audit`: say what is damaged in log directories, and how it is repaired."""
