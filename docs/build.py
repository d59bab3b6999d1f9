"""Build the pages of the documentation that are made from data: `python -m docs.build`, after the data has changed.

`--check` writes nothing, and fails if a page differs from what would be built. Names of pages build only these. Each
page is a function without arguments that returns its text, and a line in PAGES. Pages made only from data (SITE) aren't
committed: `make site` builds them."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from docs.pages import (
    atlas,
    discrepancies,
    faults,
    lambdaml_space,
    profiles,
    replay_accuracy,
    results,
    sequences,
    systems,
)
from docs.pages.operations import insert_operations, lambda_operations

from slslab.statemachines import api as states
from slslab_lab.runs.planning import architectures

DOCS = Path(__file__).parent
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


def services() -> str:
    """Return the page of services, with the operations of Lambda and of Step Functions."""
    page = insert_operations(
        (DOCS / "services.md").read_text(encoding="utf-8"),
        "lambda",
        lambda_operations(),
        "`UnknownOperationException` (404)",
        LAMBDA_NOTES,
    )
    refusal = "`UnknownOperationException`"
    return insert_operations(page, "stepfunctions", states.OPERATIONS, refusal, STATES_NOTES)


SITE: dict[str, Callable[[], str]] = {
    "what-the-paper-did-not-say.md": discrepancies.build,
    "results.md": results.build,
    "accuracy-of-replay.md": replay_accuracy.build,
    "profiles.md": profiles.build,
    "lambdaml-space.md": partial(lambdaml_space.build, DOCS.parent / lambdaml_space.DATA),
}
PAGES: dict[str, Callable[[], str]] = {
    **SITE,
    "atlas.md": atlas.build,
    "reliability.md": partial(faults.insert_faults, DOCS / "reliability.md", DOCS.parent / faults.DATA),
    "services.md": services,
    "byzantine.md": partial(results.insert_study, "byzantine", DOCS / "byzantine.md"),
    "serverless-gpus.md": partial(results.insert_study, "serverless-gpu", DOCS / "serverless-gpus.md"),
    "architectures.md": partial(systems.insert_systems, DOCS / "architectures.md"),
    **{f"sequences/{name}.svg": partial(sequences.draw_sequence, name) for name in architectures()},
}


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
    for name in arguments.pages or (PAGES.keys() - SITE.keys() if arguments.check else PAGES):
        path = arguments.to / name
        text = PAGES[name]()
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
