"""The parts of TLS and SASL that clients and servers share: settings, stores, SCRAM, JAAS."""
