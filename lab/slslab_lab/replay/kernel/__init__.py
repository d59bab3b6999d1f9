"""The discrete-event kernel that plays programs."""
