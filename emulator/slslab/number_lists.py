"""Read lists of numbers that users give."""

from slslab.errors import RequestError


def read_numbers(option: str, text: str | None, least: int, most: int, unit: str = "") -> tuple[int, ...]:
    """Return the numbers of a list such as 4,8,16; none of an empty one. RequestError if it is malformed or a number is
    out of range; `unit` is the sentence's, such as " MB"."""
    if not text:
        return ()
    try:
        numbers = tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        raise RequestError(
            f"{option} {text[:60]!r} is not a list of whole numbers.",
            f"separate them by commas: {option} {least},{most}.",
        ) from None
    for number in numbers:
        if not least <= number <= most:
            raise RequestError(
                f"{option} {number:,}{unit} is out of range.", f"choose from {least:,} to {most:,}{unit}."
            )
    return tuple(dict.fromkeys(numbers))
