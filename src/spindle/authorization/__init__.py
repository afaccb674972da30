"""The rights of principals: operations on resources, and the authorizer that decides by ACLs."""
