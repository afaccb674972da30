"""A small blocking client: sockets under the sans-IO client, for the pipeline and the tools."""
