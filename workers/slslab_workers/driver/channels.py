"""The consequences of `--channel` for the plan, the stack and the driver."""

from contextlib import suppress
from typing import Any

from slslab_workers.architecture import Requirements
from slslab_workers.channels.choice import CHANNEL, CHANNEL_HOST, PARAMETER_SERVER, SERIALISATION, host
from slslab_workers.channels.dynamodb import BESIDE_BYTES, ITEM_BYTES, create_table
from slslab_workers.driver.deployment import Deployment
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.released_log import LOG_TRAFFIC


def channel_requirements(plan: Plan, object_bytes: int) -> Requirements:
    """Return the channel's requirements; PlanError if it can't hold objects of this size, or has no host."""
    channel, node = str(CHANNEL.of(plan.options)), host(plan.options)
    if channel == "dynamodb" and object_bytes > ITEM_BYTES - BESIDE_BYTES:
        raise PlanError(
            f"DynamoDB's items hold at most 400 KB, but {plan.model} needs objects of {object_bytes / 1024:,.0f} KB.",
            "choose another --channel, a smaller model, or an architecture that exchanges parts of vectors.",
        )
    if SERIALISATION.of(plan.options) == "doubles" and channel != PARAMETER_SERVER:
        raise PlanError(
            f"--serialisation doubles does not apply to --channel {channel}.", "it is for --channel parameter-server."
        )
    if LOG_TRAFFIC.of(plan.options) and channel == PARAMETER_SERVER:
        raise PlanError(
            "The log traffic is from the authors' code for S3.",
            "leave out --as-released and --log-traffic, or choose another --channel.",
        )
    if not node and CHANNEL_HOST.of(plan.options) != CHANNEL_HOST.default:
        raise PlanError(
            f"--channel-host does not apply to --channel {channel}, which AWS bills by requests.",
            "leave it out, or choose --channel memcached, redis or parameter-server.",
        )
    return Requirements(channel="" if channel == "s3" else channel, channel_host=node)


class ChannelDeployment(Deployment):
    """A deployment with the plan's channel. It creates and deletes the table for DynamoDB."""

    def create(self) -> None:
        """Create functions, bucket, and a table with the bucket's name."""
        super().create()
        if CHANNEL.of(self.plan.options) == "dynamodb":
            client = self._cloud.client("dynamodb")
            self.created.callback(self._remove_table, client)
            create_table(client, self.bucket)

    def _remove_table(self, client: Any) -> None:
        with suppress(client.exceptions.ResourceNotFoundException):
            client.delete_table(TableName=self.bucket)
