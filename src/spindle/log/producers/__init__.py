"""Idempotent and transactional producers of one partition: what a log knows of them."""
