"""`spindle kafka`: Kafka's command-line tools, with their options and results, plus `--json`.

Each tool is a module. It reads its options, calls `spindle.client.admin`, and prints lines that
pure functions make from the results. `kafka_names` maps the names of Kafka's scripts and classes to
commands. The scripts of `spindle home` print Kafka's errors, too; `spindle kafka` prints a failure
in one sentence.
"""
