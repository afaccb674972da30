"""Who may do what: operations on resources, and the authorizer that decides by ACLs."""
