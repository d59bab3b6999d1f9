"""Make plugins/slslab_aws/deploy/schemas.json from the schemas of CloudFormation's registry that cfn-lint brings.

`python -m tests.plugins.aws.deploy.registry` writes the file again, after an update of cfn-lint or for another type.
"""

import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from slslab.aws.arns import REGION
from slslab_aws.deploy.planning import KINDS
from slslab_aws.deploy.schemas import FILE

KEPT = ("additionalProperties", "createOnlyProperties", "definitions", "properties", "readOnlyProperties", "required")
# They describe a value for people and tools, and refuse none.
SILENT = ("default", "description", "examples", "format", "insertionOrder", "title")


def build() -> dict[str, Any]:
    """Return the schemas of the types that slslab deploys, and where they come from."""
    folder = files("cfnlint") / "data" / "schemas"
    names = json.loads((folder / "providers" / f"{REGION}.json").read_text())
    schemas = {}
    for kind in sorted(KINDS):
        schema = json.loads((folder / "resources" / f"{names[kind]}.json").read_text())
        schemas[kind] = _stripped({name: schema[name] for name in KEPT if name in schema}, is_schema=True)
    return {"source": f"CloudFormation's registry, as in cfn-lint {version('cfn-lint')}", "types": schemas}


def _stripped(value: Any, *, is_schema: bool) -> Any:
    """Return a schema without parts that refuse nothing; properties may be named like keywords."""
    if isinstance(value, list):
        return [_stripped(each, is_schema=True) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, each in value.items():
        # Python has no Unicode categories in patterns, and the services check these themselves.
        if is_schema and (name in SILENT or (name == "pattern" and r"\p{" in each)):
            continue
        if is_schema and name == "type" and {"string", "number"} <= set(each):
            each = "string"  # cfn-lint lets pass what CloudFormation makes a text of
        inside = not (is_schema and name in ("definitions", "properties", "patternProperties"))
        kept[name] = _stripped(each, is_schema=inside)
    return kept


def main() -> None:
    """Write the file, one type a line."""
    made = build()
    lines = [f"{json.dumps(name)}: {json.dumps(schema, sort_keys=True)}" for name, schema in made["types"].items()]
    text = ",\n".join(lines)
    Path(str(FILE)).write_text(f'{{"source": {json.dumps(made["source"])}, "types": {{\n{text}\n}}}}\n')


if __name__ == "__main__":
    main()
