"""Operations on layers.

https://docs.aws.amazon.com/lambda/latest/api/API_PublishLayerVersion.html
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from slslab.aws.errors import invalid, missing
from slslab.lambda_.archives import Archives
from slslab.lambda_.layer_versions import LayerVersion, LayerVersions
from slslab.lambda_.packages import HOT_RELOAD_BUCKET, Packages
from slslab.lambda_.policies import NO_POLICY, as_text, check_revision, layer_statement
from slslab.lambda_.service.call import Call, Handler

Answer = Mapping[str, Any]


class LayerOperations:
    """The operations on layers of one emulator; `remove_unused` is called when a version is gone."""

    def __init__(
        self, layers: LayerVersions, packages: Packages, archives: Archives, remove_unused: Callable[[], None]
    ) -> None:
        self._layers = layers
        self._packages = packages
        self._archives = archives
        self._remove_unused = remove_unused

    def handlers(self) -> dict[str, Handler]:
        """Return what answers each operation."""
        return {
            "PublishLayerVersion": self._publish,
            "GetLayerVersion": self._get,
            "GetLayerVersionByArn": self._get_by_arn,
            "ListLayers": self._list,
            "ListLayerVersions": self._versions,
            "DeleteLayerVersion": self._delete,
            "AddLayerVersionPermission": self._permit,
            "RemoveLayerVersionPermission": self._forbid,
            "GetLayerVersionPolicy": self._policy,
        }

    async def _publish(self, call: Call) -> Answer:
        name = call.members["LayerName"]
        if call.members["Content"].get("S3Bucket") == HOT_RELOAD_BUCKET:
            raise invalid("A layer is an archive: only a function's code can be a directory that is used in place.")
        stored = await asyncio.wrap_future(self._packages.start_storing("layer", call.members["Content"]))
        try:
            layer = self._layers.publish(name, call.members, stored)
        finally:
            self._packages.release(stored)
            self._remove_unused()
        return self._document(layer, call)

    async def _get(self, call: Call) -> Answer:
        return self._document(self._layers.get(*_named(call)), call)

    async def _get_by_arn(self, call: Call) -> Answer:
        return self._document(self._layers.by_arn(call.members["Arn"]), call)

    async def _list(self, call: Call) -> Answer:
        found = self._layers.newest(call.members)
        return call.page(
            "Layers",
            {
                name: {
                    "LayerName": name,
                    "LayerArn": layer.arn.rpartition(":")[0],
                    "LatestMatchingVersion": layer.listed(),
                }
                for name, layer in found.items()
            },
        )

    async def _versions(self, call: Call) -> Answer:
        layers = self._layers.versions(call.members["LayerName"], call.members)
        # A page follows the order of its keys, and the newest version comes first.
        return call.page("LayerVersions", {f"{10**12 - layer.version}": layer.listed() for layer in layers})

    async def _delete(self, call: Call) -> None:
        self._layers.delete(*_named(call))
        self._remove_unused()

    async def _permit(self, call: Call) -> Answer:
        policy = self._layers.policy(*_named(call))
        policy.expect_new(call.members["StatementId"])
        check_revision(call.members, policy.revision, "GetLayerPolicy")
        statement = layer_statement(call.members, self._layers.get(*_named(call)).arn)
        policy.add(statement)
        return {"Statement": as_text(statement), "RevisionId": policy.revision}

    async def _forbid(self, call: Call) -> None:
        policy = self._layers.policy(*_named(call))
        check_revision(call.members, policy.revision, "GetLayerPolicy")
        policy.expect(call.members["StatementId"])
        policy.remove(call.members["StatementId"])

    async def _policy(self, call: Call) -> Answer:
        policy = self._layers.policy(*_named(call))
        if not policy.statements:
            raise missing(NO_POLICY)
        return {"Policy": policy.text(), "RevisionId": policy.revision}

    def _document(self, layer: LayerVersion, call: Call) -> Answer:
        return layer.document(self._archives.location(layer.code, call.request))


def _named(call: Call) -> tuple[str, int]:
    return call.members["LayerName"], call.members["VersionNumber"]
