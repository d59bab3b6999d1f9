"""Run the stack as a network of containers."""
