"""Render pages as self-contained HTML files."""
