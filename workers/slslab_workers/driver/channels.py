"""What the choice of a channel (`--channel`) asks of a plan, of the stack and of the driver."""

from slslab_workers.architecture import Requirements
from slslab_workers.channels.choice import CHANNEL, CHANNEL_HOST, PARAMETER_SERVER, SERIALISATION, host, serialisation
from slslab_workers.channels.dynamodb import BESIDE_BYTES, ITEM_BYTES, create_table
from slslab_workers.driver.deployment import Deployment
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import algorithms, datasets
from slslab_workers.training.released_log import LOG_TRAFFIC


def channel_requirements(plan: Plan, object_bytes: int) -> Requirements:
    """Return what the plan's channel needs; PlanError if it cannot hold objects of this size, or has no host."""
    channel, node = str(CHANNEL.of(plan.options)), host(plan.options)
    if not serialisation(plan.options).dense:
        _check_sparse(plan)
        # At most: then no number is zero.
        object_bytes *= 2
    if channel == "dynamodb" and object_bytes > ITEM_BYTES - BESIDE_BYTES:
        raise PlanError(
            f"An item of DynamoDB has at most 400 KB, and {plan.model} is exchanged in objects of "
            f"{object_bytes / 1024:,.0f} KB.",
            "choose scatterreduce with more --workers, a smaller model, or another --channel.",
        )
    if SERIALISATION.of(plan.options) == "doubles" and channel != PARAMETER_SERVER:
        raise PlanError(
            f"--serialisation doubles does not apply to --channel {channel}.", "it is for --channel parameter-server."
        )
    if LOG_TRAFFIC.of(plan.options) and channel == PARAMETER_SERVER:
        raise PlanError(
            "The log traffic is that of the authors' code for S3.",
            "leave out --as-released and --log-traffic, or choose another --channel.",
        )
    if not node and CHANNEL_HOST.of(plan.options) != CHANNEL_HOST.default:
        raise PlanError(
            f"--channel-host does not apply to --channel {channel}, which AWS bills by requests.",
            "leave it out, or choose --channel memcached, redis or parameter-server.",
        )
    return Requirements(channel="" if channel == "s3" else channel, channel_host=node)


def _check_sparse(plan: Plan) -> None:
    if algorithms.trains_locally(plan.options):
        raise PlanError(
            "--serialisation sparse is for gradients, and models are exchanged, which are dense.",
            "leave it out, or choose --algorithm ga with --synchronisation bsp.",
        )
    if not datasets.find(plan.dataset).sparse:
        raise PlanError(
            f"--serialisation sparse is for gradients of sparse rows, and those of {plan.dataset} are dense.",
            "leave it out, or choose --dataset rcv1-shaped or a sparse libsvm:FILE.",
        )


class ChannelDeployment(Deployment):
    """A deployment whose workers exchange by the plan's channel; of DynamoDB it makes the table and deletes it."""

    def create(self) -> None:
        """Create the functions and the bucket, and the table of the same name."""
        super().create()
        if self._has_table:
            create_table(self._cloud.client("dynamodb"), self.bucket)

    def remove(self) -> None:
        """Delete the table, if it is there, and what `Deployment` made."""
        try:
            if self._has_table:
                client = self._cloud.client("dynamodb")
                if self.bucket in client.list_tables()["TableNames"]:
                    client.delete_table(TableName=self.bucket)
        finally:
            super().remove()

    @property
    def _has_table(self) -> bool:
        return CHANNEL.of(self.plan.options) == "dynamodb"
