"""Reports for people: pages and tables about runs, `slslab up` and test sessions, from their documents."""
