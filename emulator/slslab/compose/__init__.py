"""The stack as a network of containers."""
