"""Write the REPORT line with which AWS Lambda ends an invocation's log."""

from slslab.run.records import billed_ms


def report_line(
    request_id: str,
    duration_ms: float,
    init_ms: float | None,
    memory_mb: int,
    max_memory_mb: int,
    status: str,
    error_type: str | None,
) -> str:
    """Return Lambda's REPORT log line: tab separated, with a newline at the end."""
    fields = [
        f"REPORT RequestId: {request_id}",
        f"Duration: {duration_ms:.2f} ms",
        f"Billed Duration: {billed_ms(duration_ms, init_ms)} ms",
        f"Memory Size: {memory_mb} MB",
        f"Max Memory Used: {max_memory_mb} MB",
    ]
    if init_ms is not None:
        fields.append(f"Init Duration: {init_ms:.2f} ms")
    if status == "timeout":
        fields.append("Status: timeout")
    elif status == "error" and error_type is not None:
        fields += ["Status: error", f"Error Type: {error_type}"]
    return "\t".join(fields) + ("\t\n" if status == "success" else "\n")
