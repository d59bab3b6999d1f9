"""What must hold of every run: messages, times, ledger and what is left (docs/checks.md). It reads traces alone."""
