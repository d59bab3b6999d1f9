"""State facts about AWS that the emulator, the state machines and replay share."""
