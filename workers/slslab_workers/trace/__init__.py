"""Events and operations of a trace, for everything that writes or reads one. Imports nothing of the project."""
