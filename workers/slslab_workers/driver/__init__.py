"""What starts and follows a run through AWS's APIs."""
