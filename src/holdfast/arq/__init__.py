"""arq: run jobs on the arq workers that a team has, and take calls that other programs enqueue in Redis.

`arq_transport`: how the jobs of a queue reach arq workers. `running`: what a worker does with them, `settings` (the class
that `arq` runs), `dispatch_runner` (runs a dispatched job) and `in_progress` (which dispatches a worker has in hand).
`intake`: `intake_settings` (the class that `arq` runs), `intake` (makes durable jobs of calls), `enqueued_call` (what a body
says), `deferred_calls` (calls of a later time) and `unreadable_calls`. `durable`: makes a job of an existing arq function; `worker_context`
has what such a function finds in ctx. `protocol`, `redis_client` and `settings_class` are what these share.
"""

from holdfast.core.errors import ConfigError

try:
    import arq as _arq  # noqa: F401 - an extra: its absence is reported before anything else is loaded
except ModuleNotFoundError as error:
    raise ConfigError(
        "holdfast.arq needs the package arq; install it with: pip install 'holdfast[arq]'"
    ) from error

from holdfast.arq.arq_transport import ArqTransport
from holdfast.arq.durable import durable
from holdfast.arq.intake.intake_settings import IntakeSettings
from holdfast.arq.running.settings import Settings

__all__ = ["ArqTransport", "IntakeSettings", "Settings", "durable"]
