"""The control plane: scripts, standing faults and the log, over HTTP. Its requests are never logged."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from holdfast_simulator.codec import ScriptError, fault_from_json, to_json
from holdfast_simulator.http import Answer, Head, error_answer, json_answer
from holdfast_simulator.log import count
from holdfast_simulator.provider import Provider
from holdfast_simulator.script import Script


class Control:
    """Answers the requests under `/_control/`."""

    def __init__(
        self,
        provider: Provider,
        *,
        set_fault: Callable[..., None],
        clear_fault: Callable[[str | None], None],
        reset: Callable[[], None],
    ) -> None:
        self._provider = provider
        self._set_fault = set_fault
        self._clear_fault = clear_fault
        self._reset = reset

    def answer(self, head: Head, body: bytes) -> Answer:
        """Carry out a request; an invalid one is answered 400 and changes nothing."""
        try:
            return json_answer(200, self._result(head, body))
        except KeyError:
            return error_answer(404, "not_found", f"there is no route {head.route}")
        except ValueError as error:
            return error_answer(400, "invalid_request_error", str(error))

    def _result(self, head: Head, body: bytes) -> Any:
        match head.method, head.path.removeprefix("/_control/"):
            case "PUT", "script":
                self._provider.set_script(Script.loads(body))
                return to_json(self._provider.script)
            case "GET", "script":
                return to_json(self._provider.script)
            case "GET", "log":
                after = int(parse_qs(head.query).get("after", ["0"])[0])
                entries = [entry for entry in self._provider.log.entries if entry.number > after]
                return {"entries": [entry.to_json() for entry in entries]}
            case "GET", "counts":
                return count(self._provider.log.entries).to_json()
            case "POST", "reset":
                self._reset()
            case "POST", "fault":
                self._change_fault(body)
            case _:
                raise KeyError(head.path)
        standing = self._provider.standing.items()
        return {"standing": [{"route": route, "fault": to_json(fault)} for route, fault in standing]}

    def _change_fault(self, body: bytes) -> None:
        request = _fault_request(body)
        if request.get("fault") is None:
            self._clear_fault(request.get("route"))
        else:
            self._set_fault(fault_from_json(request["fault"]), route=request.get("route"))


def _fault_request(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body)
    except RecursionError as error:
        raise ScriptError("fault: nested too deeply") from error
    if not isinstance(request, dict) or request.keys() - {"fault", "route"}:
        raise ScriptError('fault: send {"fault": ..., "route": ...}; a fault of null clears')
    if not isinstance(request.get("route"), str | None):
        raise ScriptError("fault.route: expected a string or null")
    return request
