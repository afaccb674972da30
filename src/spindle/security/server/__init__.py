"""The server side of the SASL mechanisms: messages in, messages out, a user or a refusal."""
