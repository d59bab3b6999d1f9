"""Pages of the documentation that are built from data; each module builds one page's Markdown."""
