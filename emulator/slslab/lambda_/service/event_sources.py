"""Operations on event source mappings."""

import asyncio
from collections.abc import Mapping
from typing import Any

from slslab.lambda_.event_sources import EventSourceMappings
from slslab.lambda_.service.call import Call, Handler

Answer = Mapping[str, Any]


class EventSourceOperations:
    """The event source mappings of one emulator."""

    def __init__(self, mappings: EventSourceMappings) -> None:
        self._mappings = mappings

    def handlers(self) -> dict[str, Handler]:
        """Return what answers each operation."""
        return {
            "CreateEventSourceMapping": self._create,
            "GetEventSourceMapping": self._get,
            "ListEventSourceMappings": self._list,
            "UpdateEventSourceMapping": self._update,
            "DeleteEventSourceMapping": self._delete,
        }

    async def _create(self, call: Call) -> Answer:
        assert call.function is not None
        queue = self._mappings.check(call.members)
        await asyncio.to_thread(self._mappings.check_queue, queue, call.function)
        self._mappings.check(call.members)  # another request may have made it meanwhile
        return self._mappings.create(call.members)

    async def _get(self, call: Call) -> Answer:
        return self._mappings.get(call.members["UUID"]).document()

    async def _list(self, call: Call) -> Answer:
        found = self._mappings.listed(call.members.get("EventSourceArn"), call.members.get("FunctionName"))
        return call.page("EventSourceMappings", found)

    async def _update(self, call: Call) -> Answer:
        return await self._mappings.update(call.members["UUID"], call.members)

    async def _delete(self, call: Call) -> Answer:
        return await self._mappings.delete(call.members["UUID"])
