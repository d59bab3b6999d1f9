"""Questions about recorded runs, each answered by replaying them (`slslab ask`, `slslab replay`)."""
