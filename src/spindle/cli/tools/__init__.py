"""Kafka's command-line tools: same flags, same output, same exit codes, plus `--json`.

One module per tool. A tool parses its options, asks through `spindle.client.admin` and prints what
pure functions make of the answers. `kafka_names` maps the names of Kafka's scripts and classes.
"""
