"""Write a plan as an AWS SAM template, with its functions' code and a driver: `slslab export sam`."""
