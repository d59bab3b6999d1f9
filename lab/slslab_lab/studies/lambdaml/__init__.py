"""LambdaML's figures of algorithms and of synchronisation reproduced: their losses, and the resulting orders."""
