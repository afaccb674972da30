"""The history of sizes and offsets of a cluster: recorded, read, and turned into forecasts."""
