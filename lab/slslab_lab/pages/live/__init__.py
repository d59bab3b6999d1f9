"""Runs in a browser during the run: what their growing traces hold so far, and a server of pages on loopback."""
