"""Programs of /var/runtime that are slslab's own: they are copied there, and run on a function's Python."""
