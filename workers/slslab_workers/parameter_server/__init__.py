"""LambdaML's HybridPS and Cirrus's parameter server: a virtual machine that adds up vectors."""

# The environment variable with the token that clients must present.
TOKEN = "SLSLAB_PARAMETER_TOKEN"
