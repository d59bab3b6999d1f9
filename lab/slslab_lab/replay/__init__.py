"""Replay: from one trace, the Lambda timeline of the recorded run and of variants that never ran."""
