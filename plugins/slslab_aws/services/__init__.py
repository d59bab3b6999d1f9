"""The services of AWS around the emulated ones, answered by moto: IAM, logs, queues, topics, tables and event buses.

They must not make a second, shadow Lambda, Step Functions or S3 that nothing else sees: what would do so is passed on
to ours, or refused by name.
"""

# Their names in signatures.
SERVICES = frozenset({"dynamodb", "events", "iam", "logs", "sns", "sqs"})
# Where a rule's events go: a service of moto's here, or an emulated one.
RULE_TARGETS = ("sqs", "logs", "events", "lambda", "states")
# How a topic's messages go on.
PROTOCOLS = ("sqs", "lambda")
