"""AWS Lambda: its API, functions, invocations and execution environments."""
