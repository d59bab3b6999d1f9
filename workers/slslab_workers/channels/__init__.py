"""What workers exchange data through: object stores, tensor databases, queues."""
