"""AWS services around Lambda, S3 and Step Functions: the one endpoint, services by moto, and templates."""
