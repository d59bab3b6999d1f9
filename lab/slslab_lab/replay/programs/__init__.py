"""Programs: what every worker does, from a recording or from an architecture's pattern."""
