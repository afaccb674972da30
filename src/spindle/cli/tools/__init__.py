"""Kafka's command-line tools: same flags, same output, same exit codes, plus `--json`.

Each tool is a module. It reads its options, asks through `spindle.client.admin`, and prints the
lines that pure functions make of the answers. `kafka_names` maps the names of Kafka's scripts and
classes to commands. Only the scripts of `spindle home` print Kafka's errors.
"""
