"""Lambda as a service: the operations of its HTTP API, by what they are about, and the emulator that serves them."""
