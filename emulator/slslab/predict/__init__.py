"""What one invocation takes on Lambda, with its range."""
