"""Add to the site (`mkdocs.yml`) what isn't a page of this folder: files of the repository's root, and the reference.

The folder's own README is the site's `overview.md`. The reference is generated: of the commands by mkdocs-click, of
what a plug-in may use and of the document of a run by mkdocstrings.
"""

import json
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import TypeAdapter

from slslab.run.document import RunDocument

ROOT = Path(__file__).parent.parent
# Files of the root, and their names in the site.
BESIDE = {"README.md": "README.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
COMMANDS = """# Commands

::: mkdocs-click
    :module: slslab.cli.root
    :command: root
    :prog_name: slslab
    :depth: 1
    :style: table
"""
DOCUMENT = """# The document of a run

`slslab run --json` and `slslab show --json` print a `RunDocument`, and a run leaves it as `run.json`.
[Its JSON Schema](document.schema.json) is for validators.

::: slslab.run.document
    options:
      inherited_members: true
      separate_signature: true
      show_signature_annotations: true
      signature_crossrefs: true
::: slslab.run.bill
    options: {members: [Cost, BillLine, NotBilled, Dated], show_signature_annotations: true, show_root_heading: false}
::: slslab.run.containers.Gpu
    options: {show_signature_annotations: true}
::: slslab.run.faults.Injected
    options: {show_signature_annotations: true}
"""


# What a package of your own may use: modules, and the documented names of each.
PLUGIN_SURFACE = {
    "slslab_workers.architecture": (
        "Architecture", "Requirements", "Fleet", "ResidentPhase", "Outcome", "RunFailed", "Progress", "Cloud",
    ),
    "slslab_workers.option": ("Option",),
    "slslab_workers.plan": ("Plan", "PlanError"),
    "slslab_workers.patterns": (
        "Pattern", "Role", "Activity", "Signal", "Gathering", "Chain", "Workload", "Counts", "trainer", "store_model",
        "UPDATE",
    ),
    "slslab_workers.patterns.messages": ("Protocol", "Message", "Wait"),
    "slslab_workers.driver.deployment": ("FunctionArchitecture", "Deployment"),
    "slslab_workers.driver.instances": ("InstanceArchitecture",),
    "slslab_workers.training.worker": ("Worker", "handle"),
    "slslab_workers.training.exchange": ("ObjectWorker",),
    "slslab_workers.training.state": ("WorkerState",),
    "slslab_workers.training.gradients": ("flatten", "flat_gradient", "write_parameters", "set_gradient"),
    "slslab_workers.training.aggregation": ("sum_in_rank_order",),
    "slslab_workers.training.replicas": ("Replicas",),
    "slslab_workers.channels.channel": ("Channel",),
    "slslab_workers.channels.keyed": ("KeyedChannel",),
}  # fmt: skip


def plugin_reference() -> str:
    """Return the page of everything that an architecture of another package may use, for mkdocstrings."""
    parts = ["# What an architecture may use", "Made from docstrings; names that aren't here are private."]
    for module, names in PLUGIN_SURFACE.items():
        parts += [f"## `{module}`", *(f"::: {module}.{name}\n    options: {{heading_level: 3}}" for name in names)]
    return "\n\n".join(parts) + "\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are not in this folder."""
    overview = files.get_file_from_path("README.md")
    assert overview is not None
    files.remove(overview)
    schema = TypeAdapter(RunDocument).json_schema()
    texts = {
        "overview.md": (ROOT / "docs" / "README.md").read_text(encoding="utf-8"),
        "commands.md": COMMANDS,
        "plugins.md": plugin_reference(),
        "document.md": DOCUMENT,
        "document.schema.json": json.dumps(schema, indent=2),
        **{there: (ROOT / here).read_text(encoding="utf-8") for here, there in BESIDE.items()},
    }
    for name, text in texts.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Return the page with links as they are in the site."""
    if page.file.src_uri in BESIDE.values():
        markdown = markdown.replace("](docs/README.md", "](overview.md").replace("](docs/", "](")
        for here, there in BESIDE.items():
            markdown = markdown.replace(f"]({here}", f"]({there}")
    for here, there in BESIDE.items():
        markdown = markdown.replace(f"](../{here}", f"]({there}")
    # Files that only the repository has are named, not linked.
    return re.sub(
        r"\[([^\]]+)\]\((?:\.\./)?(?:emulator|examples|lab|plugins|workers|results/|papers/|LICENSE|CITATION)[^)]*\)",
        r"\1",
        markdown,
    )
