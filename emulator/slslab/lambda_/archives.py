"""Serve uploaded archives for download. Answers give their location as a presigned URL, as AWS does with S3.

https://docs.aws.amazon.com/lambda/latest/api/API_FunctionCodeLocation.html: it is valid for ten minutes.
"""

from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.credentials
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from slslab.aws.arns import REGION
from slslab.aws.errors import missing
from slslab.aws.gate import principal
from slslab.aws.keys import Keyring
from slslab.lambda_.packages import Code, Packages

PATH = "/slslab/archives"
VALID_S = 600


class Archives:
    """The archives of one emulator's packages."""

    def __init__(self, packages: Packages, keys: Keyring) -> None:
        self._packages = packages
        self._owner = keys.owner

    def route(self) -> Route:
        """Return the route that serves archives; the gate has already verified the URL's signature."""
        return Route(f"{PATH}/{{name}}", self._read)

    def location(self, code: Code, host: str) -> str:
        """Return where a client that reaches this server as `host` finds a package's archive.

        A directory that is used in place has no archive: its own URL is the answer.
        """
        if code.archive is None:
            assert code.directory is not None
            return code.directory.as_uri()
        url = f"http://{host}{PATH}/{code.archive.name}"
        presigned: Any = botocore.awsrequest.AWSRequest("GET", url)
        pair = botocore.credentials.Credentials(self._owner.key_id, self._owner.secret, self._owner.token or None)
        botocore.auth.SigV4QueryAuth(pair, "lambda", REGION, expires=VALID_S).add_auth(presigned)
        return str(presigned.url)

    async def _read(self, request: Request) -> Response:
        # A function can sign such a URL with its own keys.
        principal(request).require("lambda:GetFunction", "*")
        archive = self._packages.archive(request.path_params["name"])
        if archive is None:
            raise missing(f"There is no archive {request.path_params['name']} any more: ask for its location again.")
        return FileResponse(archive, media_type="application/zip")
