"""`spindle status`: the cluster on one screen, and notifications of what needs attention."""
