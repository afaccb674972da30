"""Configuration: key tables, property files, rules between keys, and effective values."""
