"""A small blocking client for the pipeline and the tools: sockets below the sans-IO client."""
