"""GradsSharding, λ-FL and LIFL: trees of functions that make the mean of many clients' gradients (docs/protocols.md)."""
