"""Build the pages of the documentation that are made from data: `python -m docs.build`, after the data has changed.

`--check` writes nothing, and fails if a page differs from what would be built. Names of pages build only these. A page
or part of a page is a function without arguments that returns what it shows, as of a run's page, and a line in SITE or
INSERTED. Pages in SITE aren't committed: `make site` builds them."""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from docs.pages import (
    atlas,
    discrepancies,
    faults,
    lambdaml_space,
    replay_accuracy,
    results,
    sequences,
    systems,
)
from docs.pages.markdown import insert, render
from docs.pages.operations import describe_operations, lambda_operations

from slslab.report.page import Parts
from slslab.statemachines import api as states
from slslab_lab.runs.planning import architectures

DOCS = Path(__file__).parent
UNKNOWN = "`UnknownOperationException`"
# Notes on operations of Step Functions that are emulated.
STATES_NOTES = {
    "CreateStateMachine": "Standard workflows; logging is checked; logging, tracing and encryption have no effect",
    "UpdateStateMachine": "logging is checked; logging, tracing and encryption have no effect",
    "StartSyncExecution": "answers `StateMachineTypeNotSupported`, as AWS does for a Standard workflow",
    "ListExecutions": "of a machine, a version or an alias; without Map Runs",
}
# The same for Lambda's operations.
LAMBDA_NOTES = {
    "CreateFunction": "stores settings that have no effect here, and names them in its log (`slslab limits`)",
    "GetFunctionCodeSigningConfig": "answers that no code signing configuration exists",
    "InvokeWithResponseStream": "Python's runtimes don't stream, so the answer is one chunk of at most 6 MB",
}


# Pages that are made only from data.
SITE: Mapping[str, Callable[[], Parts]] = {
    "what-the-paper-did-not-say.md": discrepancies.build,
    "results.md": results.build,
    "accuracy-of-replay.md": replay_accuracy.build,
    "lambdaml-space.md": lambdaml_space.build,
}
# The built parts of other pages, by the names in their marks.
INSERTED: Mapping[str, Mapping[str, Callable[[], Parts]]] = {
    "atlas.md": {"atlas": atlas.find_best, "checks": atlas.compare_runs},
    "reliability.md": {"faults": faults.build},
    "services.md": {
        "lambda": lambda: describe_operations("lambda", lambda_operations(), f"{UNKNOWN} (404)", LAMBDA_NOTES),
        "stepfunctions": lambda: describe_operations("stepfunctions", states.OPERATIONS, UNKNOWN, STATES_NOTES),
    },
    "byzantine.md": {"byzantine": partial(results.describe_study, "byzantine")},
    "serverless-gpus.md": {"serverless-gpu": partial(results.describe_study, "serverless-gpu")},
    "architectures.md": {"systems": systems.build},
}
PICTURES = {f"sequences/{name}.svg": name for name in architectures()}
COMMITTED = (*INSERTED, *PICTURES)
PAGES = (*SITE, *COMMITTED)


def build(name: str) -> str:
    """Return the text of a page."""
    if name in PICTURES:
        return sequences.draw_sequence(PICTURES[name])
    if name in SITE:
        return render(SITE[name]()) + "\n"
    page = (DOCS / name).read_text(encoding="utf-8")
    for part, make in INSERTED[name].items():
        page = insert(page, part, make())
    return page


def main() -> int:
    """Exit code 1 if `--check` finds a page that is missing or not what would be built."""
    parser = argparse.ArgumentParser(description="Build the pages of the documentation that are made of data.")
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if a committed page, or one that is named, is not what would be built",
    )
    parser.add_argument("--to", type=Path, default=DOCS, metavar="DIR", help="where the pages are")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}; by default all")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.pages if name not in PAGES]:
        parser.error(f"there isn't a page {unknown[0]}; choose from {', '.join(PAGES)}")
    stale = 0
    for name in arguments.pages or (COMMITTED if arguments.check else PAGES):
        path = arguments.to / name
        text = build(name)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if arguments.check:
            print(f"{path} is not what would be built. Hint: python -m docs.build", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"{path} is written.")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
