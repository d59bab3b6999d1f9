"""A redis-server with default settings, to compare the tensor database with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slslab.host.session import Session
from slslab.stack.channels import EmbeddedRedis, find_server

PROGRAM = find_server("redis-server")


class _Plain(EmbeddedRedis):
    """Redis without a password, which changes what AUTH and RESET answer."""

    options: tuple[str, ...] = ()

    @property
    def endpoint(self) -> str:
        return f"redis://127.0.0.1:{self._port}"

    def _command(self, settings: Path) -> list[str]:
        return [*super()._command(settings), "--requirepass", "", *self.options]


@contextmanager
def plain_redis(*options: str) -> Iterator[str]:
    """Run a redis-server with these options, and yield its address."""
    assert PROGRAM is not None
    with Session() as session:
        server = _Plain(PROGRAM, session.home / "redis", session.mark)
        server.options = options
        with server:
            yield server.endpoint
