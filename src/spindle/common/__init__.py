"""Value types, error codes and ports that every other package may use. Imports nothing of ours."""
