"""Run long-running instances, metered as EC2 bills them."""
