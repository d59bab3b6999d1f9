"""The virtual machine that adds up vectors, of LambdaML's HybridPS and of Cirrus."""

# The variable of the token that clients give.
TOKEN = "SLSLAB_PARAMETER_TOKEN"
