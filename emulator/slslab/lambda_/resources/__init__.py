"""The resources of Lambda's API, a module for each: what is kept of it, and its operations."""
