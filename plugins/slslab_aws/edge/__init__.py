"""One endpoint for all services of AWS that there are here: what `AWS_ENDPOINT_URL` names."""
