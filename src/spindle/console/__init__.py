"""The console: a web page of a running cluster, live, for Spindle and Apache Kafka 4.x.

It needs the extra `spindle-log[console]`. One poll (`cluster_poll`) serves all open pages; a page
is a module of `pages` with its template; a change is a value of `actions`.
"""
