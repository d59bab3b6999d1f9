"""Which memory size suits a function: estimates on Lambda, the decision, and the invocations that they need."""
