"""The registry: the jobs, stages, schedules, providers, brokers, messages and consumers of this process."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from holdfast.core.dead_letters.replay_plan import AutoReplay
from holdfast.core.errors import ConfigError
from holdfast.core.failures.backoff import RetryPolicy
from holdfast.core.failures.escalation import DEFAULT_ESCALATIONS, EscalationTable
from holdfast.core.jobs.crashes import FAILED_RUNS_PER_ATTEMPT, lost_too_often
from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.schedules import Schedule
from holdfast.core.messages.announcements import AnnouncementKind, Render, bits_of
from holdfast.core.messages.broker_message import OutgoingMessage
from holdfast.core.messages.topology import Topology
from holdfast.core.providers.provider import ProviderSpec
from holdfast.engine.messages.message_type import MessageType
from holdfast.engine.signature import Signature
from holdfast.ports.fleets import Transport

OnDeadline = Literal["cancel", "finish"]
"""What happens to a function that runs at its job's deadline: it is cancelled, or finishes for a late result."""


@dataclass(frozen=True, slots=True)
class StageSpec:
    """A stage as declared."""

    name: str
    function: Callable[..., Any]
    signature: Signature
    policy: RetryPolicy
    is_async: bool
    timeout: timedelta | None = None
    provider: ProviderSpec | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as declared."""

    name: str
    function: Callable[..., Any]
    signature: Signature
    policy: RetryPolicy
    queue: str
    priority: int
    is_async: bool
    aliases: tuple[str, ...] = ()
    timeout: timedelta | None = None
    deadline: timedelta | None = None
    on_deadline: OnDeadline = "cancel"
    exhaustion: EscalationTable = field(default_factory=lambda: DEFAULT_ESCALATIONS)
    """What follows, per error class, when it has no attempt left."""
    auto_replay: AutoReplay | None = None
    max_failed_runs: int | None = None
    announce: Mapping[AnnouncementKind, Render] = field(default_factory=dict)
    """The functions that render the messages of its announcements, by their kind."""
    on_accept: list[Any] = field(default_factory=list)
    """The job that is submitted when a late result is accepted; at most one."""
    stages: dict[str, StageSpec] = field(default_factory=dict)
    """The stages that the job is known to run, by name."""
    _budgets: set[int] = field(default_factory=set)

    def saw_stage(self, stage: StageSpec) -> None:
        """Remember that the job runs this stage."""
        self.stages[stage.name] = stage
        self._budgets.add(stage.policy.attempts)

    @property
    def announces(self) -> int:
        """What is stored with each of its jobs: which announcements it makes."""
        return bits_of(self.announce)

    @property
    def crash_budget(self) -> int:
        """How many claims in a row may end in a lost worker.

        A crash does not record the stage it happened in, so the largest budget of the job and its stages applies; a
        stage that is reached checks its own.
        """
        return max(self.policy.attempts, *self._budgets, 1)

    @property
    def run_limit(self) -> int:
        """How many runs of one generation may fail or lose their worker, even if its stages store results in between."""
        return self.max_failed_runs or FAILED_RUNS_PER_ATTEMPT * self.crash_budget


@dataclass(frozen=True, slots=True)
class Recurring:
    """A job with a schedule, which the scheduler submits with these arguments, as JSON."""

    job: JobSpec
    schedule: Schedule
    args: str


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """A broker as declared: its address, or a function that is called with each message instead."""

    name: str
    url: str | None = None
    function: Callable[[OutgoingMessage], Any] | None = None
    topology: Topology | None = None


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """A consumer as declared: it receives the messages of a queue.

    Without a message type it reads a dead-letter queue: each of its messages becomes a dead letter.
    """

    name: str
    queue: str
    broker: str
    message_type: MessageType | None = None
    function: Callable[..., Any] | None = None
    takes_delivery: bool = False
    """Whether the function has a second parameter: then it is called in the transaction that stores the job."""
    is_async: bool = False
    prefetch: int = 100


class Registry:
    """Jobs and stages by name, recurring jobs, providers, brokers, message types and consumers."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobSpec] = {}
        self._by_name: dict[str, JobSpec] = {}
        self.get: Callable[[str], JobSpec | None] = self._by_name.get
        """Finds a job by its name or an alias; `None` if it is not declared here."""
        self.recurring: list[Recurring] = []
        self.providers: dict[str, ProviderSpec] = {}
        self.stages: dict[str, StageSpec] = {}
        """All declared stages, by name."""
        self.brokers: dict[str, BrokerSpec] = {}
        self.message_types: dict[str, MessageType] = {}
        """All declared message types, by name."""
        self.consumers: dict[str, ConsumerSpec] = {}
        """All declared consumers, by name."""
        self.transports: dict[str, Transport] = {}
        """How the jobs of a queue reach the fleet that runs them, for the queues that have one."""

    def add_transport(self, queue: str, transport: Transport) -> None:
        """Have a fleet run the jobs of *queue*. Raises `ConfigError` if it has another one."""
        if queue in self.transports:
            raise ConfigError(
                f"the queue {queue!r} is declared twice; a queue has one transport, so declare it once"
            )
        self.transports[queue] = transport

    def add_broker(self, broker: BrokerSpec) -> None:
        """Declare a broker. Raises `ConfigError` if the name is taken."""
        if broker.name in self.brokers:
            raise ConfigError(
                f"a broker named {broker.name!r} is declared twice; give one of them another name"
            )
        self.brokers[broker.name] = broker

    def add_message_type(self, message_type: MessageType) -> None:
        """Declare a message type. Raises `ConfigError` if the name is taken, or its broker is not declared."""
        if message_type.name in self.message_types:
            raise ConfigError(
                f"a message type named {message_type.name!r} is declared twice; rename one of them"
            )
        if message_type.route.broker not in self.brokers:
            raise ConfigError(
                f"message type {message_type.name!r} goes to the broker {message_type.route.broker!r}, which is not "
                "declared; declare it first, with hold.broker(...)"
            )
        self.message_types[message_type.name] = message_type

    def add_consumer(self, consumer: ConsumerSpec) -> None:
        """Declare a consumer. Raises `ConfigError` if the name or the queue is taken."""
        for other in self.consumers.values():
            if other.name == consumer.name:
                raise ConfigError(
                    f"a consumer named {other.name!r} is declared twice; give one of them another name"
                )
            if (other.broker, other.queue) == (consumer.broker, consumer.queue):
                raise ConfigError(
                    f"the queue {other.queue!r} has the consumer {other.name!r} already; two would share its messages "
                    "at random, so declare one"
                )
        self.consumers[consumer.name] = consumer

    def consumer_of(self, queue: str, broker: str) -> ConsumerSpec | None:
        """Return the consumer of a queue that makes jobs of its messages; `None` if none is declared here."""
        return next(
            (
                spec
                for spec in self.consumers.values()
                if spec.message_type is not None and (spec.queue, spec.broker) == (queue, broker)
            ),
            None,
        )

    def message_type_of(self, model: type) -> MessageType:
        """Return the message type that *model* was declared with. Raises `ConfigError`."""
        for message_type in self.message_types.values():
            if message_type.model is model:
                return message_type
        raise ConfigError(
            f"{model.__name__} is not declared as a message; decorate it with @hold.message(...)"
        )

    def add_provider(self, provider: ProviderSpec) -> None:
        """Declare a provider. Raises `ConfigError` if the name is taken."""
        if provider.name in self.providers:
            raise ConfigError(
                f"a provider named {provider.name!r} is declared twice; give one of them another name"
            )
        self.providers[provider.name] = provider

    def backups_of(self, name: str) -> Iterator[ProviderSpec]:
        """Yield the backup of a provider, the backup's backup, and so on, each once."""
        seen, spec = {name}, self.providers.get(name)
        while spec is not None and spec.backup is not None and spec.backup not in seen:
            seen.add(spec.backup)
            spec = self.providers[spec.backup]
            yield spec

    def ensure_backups(self) -> None:
        """Raise `ConfigError` if a backup is not declared: it would be missing when it is needed."""
        for provider in self.providers.values():
            if provider.backup is not None and provider.backup not in self.providers:
                raise ConfigError(
                    f"provider {provider.name!r} has the backup {provider.backup!r}, which is not declared; "
                    f"declare it with hold.provider({provider.backup!r})"
                )

    def add_stage(self, spec: StageSpec) -> None:
        """Declare a stage. Results are stored under the stage's name, so a name belongs to one function.

        A function that is defined again, by a reloaded module or in a function that is called often, is the same stage.
        """
        other = self.stages.get(spec.name)
        if other is not None and _defined_at(other.function) != _defined_at(spec.function):
            raise ConfigError(
                f"a stage named {spec.name!r} is declared twice, by {_defined_at(other.function)} and by "
                f"{_defined_at(spec.function)}; give one of them another name: @hold.stage('…')"
            )
        self.stages[spec.name] = spec

    def add(self, spec: JobSpec) -> None:
        """Declare a job. Raises `ConfigError` if its name or an alias is taken."""
        for name in (spec.name, *spec.aliases):
            if self.get(name) is not None:
                raise ConfigError(f"a job named {name!r} is declared twice; give one of them another name")
        if not -32_768 <= spec.priority <= 32_767:
            raise ConfigError(f"priority of job {spec.name!r} must be between -32768 and 32767")
        self._jobs[spec.name] = spec
        self._by_name |= dict.fromkeys([spec.name, *spec.aliases], spec)

    def recur(self, spec: JobSpec, schedule: Schedule, args: str) -> None:
        """Declare that a job recurs, with *args*. Raises `ConfigError` if the schedule's name is taken."""
        if any(other.schedule.name == schedule.name for other in self.recurring):
            raise ConfigError(
                f"a schedule named {schedule.name!r} is declared twice; give one of them a name"
            )
        self.recurring.append(Recurring(spec, schedule, args))

    def runs(self, claim: Claim) -> bool:
        """Whether the function of a claimed job is to be called: it is declared, and the job does not end first."""
        spec = self.get(claim.name)
        return (
            spec is not None
            and not claim.cancel_requested
            and not lost_too_often(claim, spec.crash_budget)
            and claim.failed_runs < spec.run_limit
        )

    @property
    def names(self) -> list[str]:
        """All names of the declared jobs, aliases included."""
        return [*self._by_name]

    def __iter__(self) -> Iterator[JobSpec]:
        return iter(self._jobs.values())


def _defined_at(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
