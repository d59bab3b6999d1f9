"""Remove the user's own settings for AWS from the environment of our programs."""

import os
import re
from collections.abc import Mapping

# The user's settings for AWS itself, and proxies, which don't lead to this host.
FOREIGN = re.compile(r"AWS_.*|SLSLAB_.*|.*_proxy", re.IGNORECASE)
NO_FILES = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}


def without_foreign(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for one of our programs: without the user's settings for AWS, slslab and proxies."""
    return {name: value for name, value in variables.items() if not FOREIGN.fullmatch(name)} | NO_FILES
