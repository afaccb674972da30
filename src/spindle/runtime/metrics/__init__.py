"""What operators see: counted by the parts of a node, made into Prometheus' text for a scrape."""
