"""Configuration: the keys with their types and defaults, property files, and effective values."""
