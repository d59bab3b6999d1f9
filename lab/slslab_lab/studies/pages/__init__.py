"""Pages of the documentation that are built from data: one module each, which builds its Markdown."""
