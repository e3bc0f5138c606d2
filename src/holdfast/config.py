"""Settings: an argument overrides the environment, the environment overrides the default.

In the environment each setting is `HOLDFAST_` and its name. Settings with common names (`RETRY_MAX_ATTEMPTS`,
`DATABASE_URL` …) are also read without the prefix. An invalid value prevents the start, with one line that names it.
A name without the prefix may belong to another program: its invalid value raises an error only when it is used.
"""

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from holdfast.core.dead_letters.retention import Retention
from holdfast.core.errors import ConfigError
from holdfast.core.failures.backoff import Backoff, RetryPolicy
from holdfast.core.providers.breaker import Breaker
from holdfast.engine.options import WorkerOptions

PREFIX = "HOLDFAST_"

GENERIC = frozenset(
    {
        "database_url",
        "retry_max_attempts",
        "retry_base_delay_ms",
        "retry_jitter_max_ms",
        "worker_lease_ttl_sec",
        "worker_concurrency",
        "gateway_url",
        "gateway_timeout_ms",
        "circuit_window",
        "circuit_fail_threshold",
        "circuit_cooldown_ms",
    }
)
"""Settings that are also read without the prefix, under names that other programs may use."""


def variables_of(name: str) -> list[str]:
    """Return the environment variables that set *name*; the first one that is set counts.

    >>> variables_of("log_level"), variables_of("gateway_url")
    (['HOLDFAST_LOG_LEVEL'], ['HOLDFAST_GATEWAY_URL', 'GATEWAY_URL'])
    """
    own = f"{PREFIX}{name.upper()}"
    return [own, name.upper()] if name in GENERIC else [own]


def read_environment(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the variable and its value for each of *names* that the environment sets; case is ignored."""
    environment = {name.upper(): value for name, value in os.environ.items()}  # noqa: TID251 - settings come in here
    return {
        name: (variable, environment[variable])
        for name in names
        for variable in reversed(variables_of(name))  # the first one replaces the others
        if variable in environment
    }


class Settings(BaseModel):
    """The settings of Holdfast."""

    model_config = ConfigDict(extra="ignore", validate_default=True)

    _variables: dict[str, str] = PrivateAttr(default_factory=dict)
    """The environment variable that each setting came from."""
    _unusable: dict[str, str] = PrivateAttr(default_factory=dict)
    """Errors in values of generic names. These settings have their default until they are used."""

    @model_validator(mode="before")
    @classmethod
    def _add_environment(cls, given: Any) -> Any:
        """Read from the environment what is not among the arguments."""
        if not isinstance(given, dict):
            return given  # an instance, which has read it already
        return {name: value for name, (_, value) in read_environment(cls.model_fields).items()} | given

    def source_of(self, name: str) -> str:
        """Return where a setting came from: its environment variable, or the name of the argument."""
        return self._variables.get(name, name)

    def has_generic_source(self, name: str) -> bool:
        """Whether a setting came from a variable without the prefix, which may be meant for another program."""
        return self._variables.get(name) == name.upper()

    def ensure_usable(self, *names: str) -> None:
        """Raise `ConfigError` if one of *names*, or without names any setting, has an invalid value."""
        for name, why in self._unusable.items():
            if not names or name in names:
                raise ConfigError(why)

    database_url: str = Field("sqlite:///holdfast.db", description="Where jobs are stored")
    database_pooled: bool = Field(
        False,  # noqa: FBT003 - a default has no name here
        description="Whether the address belongs to a pooler in transaction mode, such as PgBouncer",
    )
    database_direct_url: str | None = Field(
        None, description="Address that bypasses the pooler, for the connection that listens"
    )
    database_schema: str = Field("holdfast", description="Schema of the tables in a PostgreSQL database")
    retry_max_attempts: int = Field(
        3, ge=1, le=10_000, description="Attempts per job or stage, including the first"
    )
    retry_base_delay_ms: int = Field(
        5_000, ge=0, le=300_000, description="Delay after the first failed attempt"
    )
    retry_jitter_max_ms: int = Field(
        5_000, ge=0, le=300_000, description="Maximum random addition to a delay"
    )
    worker_lease_ttl_sec: float = Field(
        90, gt=0, le=86_400, description="Duration of a lease that is not extended"
    )
    worker_concurrency: int = Field(
        100, ge=1, le=100_000, description="Maximum number of concurrent attempts of a worker"
    )
    worker_grace_sec: float = Field(30, ge=0, le=86_400, description="How long a shutdown waits for attempts")
    worker_poll_sec: float = Field(
        1, gt=0, le=60, description="Poll interval of an idle worker that gets no notification"
    )
    worker_health_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="Port on which `holdfast worker` answers /live, /ready and /metrics",
    )
    worker_health_host: str = Field("127.0.0.1", description="Address on which the health port listens")
    gateway_url: str | None = Field(None, description="Default address of a `JsonGateway`")
    gateway_timeout_ms: int = Field(
        60_000, ge=1, le=86_400_000, description="Timeout of its calls, from the connection to the last byte"
    )
    circuit_window: int = Field(20, ge=1, le=1_000, description="Number of calls in the window of a breaker")
    circuit_fail_threshold: float = Field(
        0.5, ge=0, lt=1, description="Fraction of failed calls above which the breaker opens"
    )
    circuit_cooldown_ms: int = Field(
        30_000, ge=1, le=86_400_000, description="How long the breaker stays open before trials"
    )
    code_version: str = Field(
        "", max_length=200, description="Version of the application, recorded in dead letters"
    )
    archive_url: str | None = Field(
        None,
        description="Where dead letters are archived after their retention period: a folder, or s3://bucket/prefix",
    )
    archive_key: str | None = Field(
        None,
        min_length=32,
        description="Key that encrypts the archive, instead of the store's own; several separated by commas, the current one first",
    )
    dead_letter_days: float = Field(7, gt=0, le=36_500, description="How long a dead letter is kept")
    dead_letter_limit: int = Field(10_000, ge=1, description="Maximum number of dead letters that are kept")
    dead_letter_alert: int = Field(
        100, ge=1, description="Number of dead letters within a day above which a ticket is raised"
    )
    finished_days: float = Field(30, gt=0, le=36_500, description="How long an ended job is kept")
    key_days: float = Field(
        90,
        gt=0,
        le=36_500,
        description="How long a key is kept; until then, submitting it again runs nothing",
    )
    tickets_per: Literal["letter", "group"] = Field(
        "letter",
        description="Whether there is a ticket for each dead letter, or one for a group with the same cause",
    )
    ticket_webhook_url: str | None = Field(None, description="URL to which each ticket is posted as JSON")
    ticket_webhook_secret: str | None = Field(
        None, description="Secret that signs those posts; several separated by commas during a rotation"
    )
    ticket_webhook_allow: str | None = Field(
        None,
        description="Hosts and networks, separated by commas, that may be called although they are not public",
    )
    log_level: str = Field(
        "INFO", pattern="(?i)^(debug|info|warning|error)$", description="Minimum level that is logged"
    )
    log_format: Literal["json", "text"] = Field("json", description="Format of log lines")

    @property
    def retry_policy(self) -> RetryPolicy:
        """The retry policy of jobs and stages that declare none."""
        backoff = Backoff.additive_jitter(
            base=timedelta(milliseconds=self.retry_base_delay_ms),
            jitter=timedelta(milliseconds=self.retry_jitter_max_ms),
        )
        return RetryPolicy(self.retry_max_attempts, backoff)

    @property
    def breaker(self) -> Breaker:
        """The breaker of providers that declare none; it needs half of its window before it can open."""
        return Breaker(
            window=self.circuit_window,
            minimum=-(-self.circuit_window // 2),
            threshold=self.circuit_fail_threshold,
            cooldown=timedelta(milliseconds=self.circuit_cooldown_ms),
        )

    @property
    def retention(self) -> Retention:
        """The retention of jobs and dead letters, unless the application declares another."""
        return Retention(
            letters=timedelta(days=self.dead_letter_days),
            most_letters=self.dead_letter_limit,
            finished=timedelta(days=self.finished_days),
            keys=timedelta(days=self.key_days),
            letters_a_day=self.dead_letter_alert,
        )

    @property
    def gateway_timeout(self) -> timedelta:
        """The timeout of calls to a provider that declares none."""
        return timedelta(milliseconds=self.gateway_timeout_ms)

    @property
    def worker_options(self) -> WorkerOptions:
        """The default options of a worker."""
        return WorkerOptions(
            slots=self.worker_concurrency,
            lease=timedelta(seconds=self.worker_lease_ttl_sec),
            grace=timedelta(seconds=self.worker_grace_sec),
            poll=timedelta(seconds=self.worker_poll_sec),
        )


def load_settings(**arguments: Any) -> Settings:
    """Read the settings; *arguments* that are not `None` have precedence.

    Raises `ConfigError` with one line that names the first invalid value; invalid values of generic names are
    raised by `ensure_usable`.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    found, unusable = read_environment(Settings.model_fields.keys() - given.keys()), dict[str, str]()
    variables = {name: variable for name, (variable, _) in found.items()}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            name = str(each["loc"][0])
            source = variables.get(name, name)
            # An invalid key is still a secret.
            value = "…" if name.endswith(("_key", "_secret")) else repr(each["input"])
            why = f"{source}={value} is not usable: {each['msg']}"
            if source != name.upper():
                raise ConfigError(why) from None
            unusable[name] = why
        settings = Settings(**given, **{name: Settings.model_fields[name].default for name in unusable})
    settings._variables, settings._unusable = variables, unusable
    return settings
