"""Training: models, data, gradients, and the loop of a worker."""
