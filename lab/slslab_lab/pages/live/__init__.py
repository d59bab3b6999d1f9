"""Running runs in a browser: the contents of their growing traces, and a server of pages on loopback."""
