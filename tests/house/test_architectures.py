"""No line of code outside an architecture's folder, the studies and the papers' data names it."""

import re

from tests.house.messages import PRODUCT, ROOT

from slslab_lab.runs.planning import architectures

# Studies compare architectures by name, as papers do.
STUDIES = "slslab_lab/studies/"
# A device is called so, too.
DEVICE = "gpu"
# Help texts show commands that readers can copy.
HELP, EXAMPLE = ("slslab/cli/", "slslab_lab/commands/"), re.compile(r"\bslslab (?:run|accuracy) [a-z]+ --[a-z]")
# The operation that is named after torch's.
OPERATION = 'ALL_REDUCE = "peer.allreduce"'


def without_exceptions(path: str, line: str) -> str:
    """Return a line without what it may name."""
    line = line.replace(OPERATION, "")
    return EXAMPLE.sub("", line) if any(folder in path for folder in HELP) else line


def test_architectures_are_named_in_their_folders() -> None:
    own = tuple(f"slslab_workers/{name}/" for name in architectures())
    names = {name for each in architectures().values() for name in (each.name, each.title)} - {DEVICE, ""}
    name = re.compile(rf"\b({'|'.join(sorted(names))})\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(part in str(path) for part in (*own, STUDIES))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if name.search(without_exceptions(str(path), line))
    ]
    assert found == []
