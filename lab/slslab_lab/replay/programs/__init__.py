"""Programs: what every worker does, from a recording or an architecture's pattern."""
