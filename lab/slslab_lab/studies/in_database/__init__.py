"""SPIRT's operations in the database against what a function does in their place, Section 4.2 of Barrak et al."""
