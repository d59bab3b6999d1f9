"""Reports: what a run's document says, for people."""
