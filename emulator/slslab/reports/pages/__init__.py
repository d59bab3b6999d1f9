"""Pages of the documentation that are built from data, never typed: one module each, with what builds its Markdown."""
