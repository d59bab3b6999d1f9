"""Bills: usage times the prices of a dated book."""
