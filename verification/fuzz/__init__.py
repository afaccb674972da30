"""Hostile input for a running node: valid requests, damaged ones and noise, from a seed.

A run has three parts: attackers, which send what `cases` makes; a canary, which uses the node as an
ordinary client does and checks every answer; and a watch over the node's process and log.
`secured` has the attackers of a node with TLS, logins and ACLs, and a judgement of their access.
"""
