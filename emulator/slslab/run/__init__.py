"""A run: its log, records, metrics, document, directory and bill."""
