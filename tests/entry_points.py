"""A package's entry points in a folder, as pip leaves them, without installing the package."""

from pathlib import Path


def register(folder: Path, package: str, **groups: str) -> None:
    """Register `NAME = module:value`, one a line, in groups such as `models` (`slslab.models`)."""
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    sections = (f"[slslab.{group}]\n{lines}\n" for group, lines in groups.items())
    (metadata / "entry_points.txt").write_text("".join(sections))
