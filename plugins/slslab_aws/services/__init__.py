"""AWS services around the emulated ones, answered by moto: IAM, logs, queues, topics, tables and event buses.

moto must not run a second Lambda, Step Functions or S3 that nothing else sees: such operations are forwarded to ours,
or refused by name.
"""

# Their names in signatures.
SERVICES = frozenset({"dynamodb", "events", "iam", "logs", "sns", "sqs"})
# Targets of a rule's events.
RULE_TARGETS = ("lambda", "states", "sqs", "logs")
# Targets of a topic's messages.
PROTOCOLS = ("sqs", "lambda")
