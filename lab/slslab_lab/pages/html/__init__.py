"""Pages of runs, comparisons and reproductions: one HTML file each, which needs nothing beside itself."""
