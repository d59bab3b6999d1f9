"""Templates of AWS SAM and CloudFormation, deployed to the running service."""
