"""SPIRT's operations in the database compared with the same work in a function (Section 4.2 of Barrak et al.)."""
