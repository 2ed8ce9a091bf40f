"""The pages: what the service knows, for people with a browser. Read-only, and of nobody's scripts but our own."""
