"""Every error that the S3 server raises is one of S3's."""

import re
from pathlib import Path

from slslab.object_store import errors


def test_every_code_has_a_status_and_a_message() -> None:
    folder = Path(errors.__file__).parent
    found = {
        code
        for path in folder.glob("*.py")
        for call in re.findall(r"(?s)failure\(([^)]*)", path.read_text())
        for code in re.findall(r'"([A-Z][A-Za-z0-9]+)"', call.partition(",")[0])
    }
    assert len(found) > 40
    assert found <= errors.ERRORS.keys()
