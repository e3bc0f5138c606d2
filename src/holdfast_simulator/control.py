"""The control plane: scripts, standing faults and the log, over HTTP. Its calls are never logged."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from holdfast_simulator.codec import ScriptError, fault_from_json, to_json
from holdfast_simulator.faults import Fault
from holdfast_simulator.http import Answer, Head, error_answer, json_answer
from holdfast_simulator.log import count
from holdfast_simulator.provider import Provider
from holdfast_simulator.script import Script


class Control:
    """Answers everything under `/_control/`."""

    def __init__(
        self,
        provider: Provider,
        *,
        stand: Callable[[Fault, str | None], None],
        clear: Callable[[str | None], None],
        start_over: Callable[[], None],
    ) -> None:
        self._provider = provider
        self._stand = stand
        self._clear = clear
        self._start_over = start_over

    def answer(self, head: Head, body: bytes) -> Answer:
        """Do what is asked; a request that cannot be understood is answered 400 and changes nothing."""
        try:
            return json_answer(200, self._result(head, body))
        except KeyError:
            return error_answer(404, "not_found", f"nothing answers to {head.route}")
        except ValueError as error:
            return error_answer(400, "invalid_request_error", str(error))

    def _result(self, head: Head, body: bytes) -> Any:
        match head.method, head.path.removeprefix("/_control/"):
            case "PUT", "script":
                self._provider.follow(Script.loads(body))
                return to_json(self._provider.script)
            case "GET", "script":
                return to_json(self._provider.script)
            case "GET", "log":
                return {"entries": self._entries(head)}
            case "GET", "counts":
                return count(self._provider.log.entries).to_json()
            case "POST", "reset":
                self._start_over()
            case "POST", "fault":
                self._set_fault(body)
            case _:
                raise KeyError(head.path)
        return {"standing": [_standing(*pair) for pair in self._provider.standing.items()]}

    def _entries(self, head: Head) -> list[dict[str, Any]]:
        after = int(parse_qs(head.query).get("after", ["0"])[0])
        return [entry.to_json() for entry in self._provider.log.entries if entry.number > after]

    def _set_fault(self, body: bytes) -> None:
        wish = _wish(body)
        if wish.get("fault") is None:
            self._clear(wish.get("route"))
        else:
            self._stand(fault_from_json(wish["fault"]), wish.get("route"))


def _wish(body: bytes) -> dict[str, Any]:
    try:
        wish = json.loads(body)
    except RecursionError as error:
        raise ScriptError("fault: nested too deeply") from error
    if not isinstance(wish, dict) or wish.keys() - {"fault", "route"}:
        raise ScriptError('fault: send {"fault": ..., "route": ...}; a fault of null clears')
    if not isinstance(wish.get("route"), str | None):
        raise ScriptError("fault.route: expected a text or null")
    return wish


def _standing(route: str | None, fault: Fault) -> dict[str, Any]:
    return {"route": route, "fault": to_json(fault)}
