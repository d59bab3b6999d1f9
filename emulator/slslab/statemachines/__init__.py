"""Emulate Step Functions: Standard workflows with Lambda Tasks in this emulator, and AWS's limits and error names.

moto's interpreter (LocalStack's own code) evaluates the Amazon States Language; the code around it enforces what AWS
enforces and moto doesn't. It runs in a process of its own (`python -m slslab.statemachines`); docs/services.md
lists what is enforced and what isn't.
"""
