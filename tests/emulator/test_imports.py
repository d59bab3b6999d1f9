"""What the emulator's own image does not have, its service must not import."""

import subprocess
import sys


def test_the_service_in_a_container_needs_nothing_of_what_trains_or_reads_traces() -> None:
    absent = ["torch", "numpy", "pyarrow", "sklearn", "PIL", "moto", "pytest"]
    code = "import slslab.compose.__main__, slslab.lambda_.container_sandbox, slslab.stack.instances.containers"
    text = f"import sys\nsys.modules.update(dict.fromkeys({absent}))\n{code}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
