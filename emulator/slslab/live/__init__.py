"""Runs in a browser while they go on: what their growing traces say so far, and a server of pages on loopback."""
