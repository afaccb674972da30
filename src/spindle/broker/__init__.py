"""What a broker answers: one handler module per API, and the replicas it hosts. No asyncio here."""
