"""What the server of forks (`tests.commands.forked`) imports, and the template of the forks' environments.

Nothing else imports this module.
"""

import torch  # noqa: F401
from tests.commands import IMPORTS, template

import slslab_lab.pages.run_page
import slslab_lab.runs.execution  # noqa: F401
from slslab.host.namespaces import detect

template(detect(), IMPORTS)
