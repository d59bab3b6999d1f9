"""Start and follow a run through AWS's APIs."""
