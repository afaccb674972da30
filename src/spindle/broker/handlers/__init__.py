"""One module per API: `(services, context, request) -> response`, or an awaitable of it."""
