"""Pages: what they are made of, and how they become one HTML file that needs nothing beside itself."""
