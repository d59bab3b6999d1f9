"""results/mutation.md is about the modules as they are."""

import re

from tests.mutation import MODULES, REPORT, digest


def test_the_mutation_page_is_of_the_present_modules() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| `([0-9a-f]{12})` \|", REPORT.read_text(encoding="utf-8"), re.MULTILINE)
    present = {module: digest(module) for module in MODULES}
    changed = sorted(present.items() - dict(rows).items())
    assert dict(rows).keys() <= present.keys(), (
        "results/mutation.md has modules that are no longer tested: `make mutation`."
    )
    assert not changed, f"results/mutation.md is older than {', '.join(dict(changed))}: run `make mutation`."
