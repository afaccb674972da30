"""The handlers of a broker, one module for each API or family of APIs."""
