"""LambdaML's figures of algorithms and of synchronisation made again: their losses, and the orders that these have."""
