"""How workers exchange data: object stores, tensor databases, queues."""
