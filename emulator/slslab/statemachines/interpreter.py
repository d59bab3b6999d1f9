"""Prepare moto's interpreter of the Amazon States Language, and parse programs with it.

moto_patches.py, jsonpath.py and variables.py replace parts of it when they are imported, and `prepare` its Tasks.
"""

import copy
import json
import logging
from typing import Any

from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser

from slslab.aws.limits import Limits
from slslab.host.litter import Litter
from slslab.statemachines import bounded, jsonpath, moto_patches, tasks, variables  # noqa: F401
from slslab.statemachines.definitions import invalid_definition

# Longest excerpt of moto's message in a refusal: some messages show the whole tree.
SHOWN = 200


def prepare(lambda_client: Any, limits: Limits) -> None:
    """Make moto's interpreter call Lambda with this client, enforce these limits, and behave like AWS."""
    logging.getLogger("moto").setLevel(logging.CRITICAL)  # failures are in the execution's history
    moto_patches.enforce(limits)
    tasks.connect(lambda_client, limits)


def parse(definition: str) -> Any:
    """Parse a definition into a program; ServiceError (InvalidDefinition) if the interpreter rejects it."""
    try:
        if "ToleratedFailure" in definition or "ProcessorConfig" in definition:
            definition = json.dumps(json.loads(definition, object_hook=_without_idle_fields))
        program = AmazonStateLanguageParser.parse(definition)[0]
        copy.deepcopy(program)  # as each execution does
    except RecursionError as error:
        raise invalid_definition("SCHEMA_VALIDATION_FAILED: The definition is nested too deeply for slslab") from error
    except Exception as error:  # its preprocessor raises errors of any type
        raise invalid_definition(f"SCHEMA_VALIDATION_FAILED: {str(error)[:SHOWN]}") from error
    finally:
        LITTER.collect()
    if '"JSONata"' in definition:
        bounded.POOL.warm()
    return program


def _without_idle_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Return an object without fields that have no effect in an inline Map: moto's grammar misreads some of them."""
    is_map = given.get("Type") == "Map" and not given.keys().isdisjoint(("ItemProcessor", "Iterator"))
    idle = "ToleratedFailure" if is_map else "ProcessorConfig" if "StartAt" in given else None
    return {name: value for name, value in given.items() if idle is None or not name.startswith(idle)}


LITTER = Litter()
