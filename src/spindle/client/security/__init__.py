"""The client side of TLS and SASL: settings, mechanisms, the login, and what its failures mean."""
