"""The fuzzer against a node with TLS, logins and ACLs.

Attackers have the password of one user, the stranger, who has no right. They damage TLS records and
logins, and send requests before a login and as the stranger. The node must give and change nothing,
and write no secret into its log.
"""
