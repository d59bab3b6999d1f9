"""What a trace consists of, for all who write or read one: events and operations. It imports nothing of the project."""
