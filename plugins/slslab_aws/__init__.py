"""AWS around Lambda, S3 and Step Functions: the one endpoint, the services by moto, and templates."""
