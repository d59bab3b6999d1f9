"""The package's own test: pip install . pytest && pytest"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TRAINING = ("--model", "mlp", "--dataset", "spirals", "--workers", "2", "--every", "2", "--epochs", "10", "--lr", "0.2")


def slslab(folder: Path, *words: str) -> Any:
    """Return the document of a command, whose runs are left in a folder."""
    variables = {**os.environ, "SLSLAB_RUNS": str(folder)}
    command = [sys.executable, "-m", "slslab", *words, "--json"]
    return json.loads(subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True).stdout)


def test_workers_learn_the_spirals_together(tmp_path: Path) -> None:
    document = slslab(tmp_path, "run", "parameter-averaging", *TRAINING, "--strict-packages")
    assert document["replicas_equal"]
    assert document["accuracy"][-1] > 0.9
    assert document["plan"]["model_spec"]["outputs"] == 3
    assert slslab(tmp_path, "check", "last")["holds"]
    assert slslab(tmp_path, "replay", "last", "--workers", "64")
