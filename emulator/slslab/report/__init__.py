"""Reports: what a run's document says, for people; pages and tables, and those of `up` and of a session of tests."""
