"""What must hold of every run: messages, times, ledger and what is left (docs/trace.md). It reads traces alone."""
