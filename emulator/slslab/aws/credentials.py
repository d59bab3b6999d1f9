"""The user's own settings for AWS, which programs of ours do without."""

import os
import re
from collections.abc import Mapping

# What the user has for AWS itself, and proxies, which do not lead to this host.
FOREIGN = re.compile(r"AWS_.*|SLSLAB_.*|.*_proxy", re.IGNORECASE)
NO_FILES = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}


def without_foreign(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a program of ours: without the user's settings of AWS, of slslab and of proxies."""
    return {name: value for name, value in variables.items() if not FOREIGN.fullmatch(name)} | NO_FILES
