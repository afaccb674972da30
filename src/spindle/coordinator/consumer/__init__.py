"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members reconcile.

A group has an epoch, which rises when its subscriptions or their topics change; a target assignment
of that epoch; and members, which go in steps from their present assignments to the target. A
partition goes to its new owner only after the old one has given it up.

All durable state comes from committed records: a decision writes records and changes nothing.
"""
