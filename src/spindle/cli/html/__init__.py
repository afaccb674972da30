"""HTML pages of plans and audits: pure functions from the document of `--json` to the text."""
