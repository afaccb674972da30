"""The state of the idempotent and transactional producers of one partition."""
