"""Predict how long one invocation takes on Lambda, with a range."""
