"""Settings: an argument before the environment, the environment before the default.

In the environment each setting is `HOLDFAST_` and its name. Those that operators of such services know already
(`RETRY_MAX_ATTEMPTS`, `DATABASE_URL` …) are read without the prefix, too. A value that makes no sense stops the start
with one line that names it. But a name without the prefix may be another program's: its value stops nothing before
it is used.
"""

from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

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
"""Settings that are also read without the prefix, under names that other programs may use as well."""


def variables_of(name: str) -> list[str]:
    """Name the variables of the environment that set *name*; the first one that is there counts.

    >>> variables_of("log_level"), variables_of("gateway_url")
    (['HOLDFAST_LOG_LEVEL'], ['HOLDFAST_GATEWAY_URL', 'GATEWAY_URL'])
    """
    own = f"{PREFIX}{name.upper()}"
    return [own, name.upper()] if name in GENERIC else [own]


class _Environment(EnvSettingsSource):
    """Reads the environment by the names of `variables_of`, in any case."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        variable = self.variable(field_name)
        return None if variable is None else self.env_vars[variable.lower()], field_name, False

    def variable(self, name: str) -> str | None:
        """Name the variable that sets *name*, if there is one."""
        return next((each for each in variables_of(name) if each.lower() in self.env_vars), None)


class Settings(BaseSettings):
    """What can be set without touching code."""

    model_config = SettingsConfigDict(case_sensitive=False, extra="ignore")

    _variables: dict[str, str] = PrivateAttr(default_factory=dict)
    """The variable of the environment that each setting came from."""
    _unusable: dict[str, str] = PrivateAttr(default_factory=dict)
    """What is wrong with values of generic names. They have their default until they are used."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take an argument first, and then what is in the environment."""
        return init_settings, _Environment(settings_cls)

    def shown(self, name: str) -> str:
        """Name a setting as it was given: by the variable that it came from, or as an argument."""
        return self._variables.get(name, name)

    def is_foreign(self, name: str) -> bool:
        """Whether it came from a name without the prefix, which may be meant for another program."""
        return self._variables.get(name) == name.upper()

    def ensure_usable(self, *names: str) -> None:
        """Raise `ConfigError` if one of *names*, or of all settings, has a value that makes no sense."""
        for name, why in self._unusable.items():
            if not names or name in names:
                raise ConfigError(why)

    database_url: str = Field("sqlite:///holdfast.db", description="Where jobs live")
    database_pooled: bool = Field(
        False,  # noqa: FBT003 - a default has no name here
        description="Whether the address leads through a pooler in transaction mode, such as PgBouncer",
    )
    database_direct_url: str | None = Field(
        None, description="The way past the pooler, for a connection that listens"
    )
    database_schema: str = Field(
        "holdfast", description="The schema of a PostgreSQL database that jobs are kept in"
    )
    retry_max_attempts: int = Field(
        3, ge=1, le=10_000, description="Attempts per job or stage, the first included"
    )
    retry_base_delay_ms: int = Field(
        5_000, ge=0, le=300_000, description="Wait after the first failed attempt"
    )
    retry_jitter_max_ms: int = Field(5_000, ge=0, le=300_000, description="Most that chance adds to a wait")
    worker_lease_ttl_sec: float = Field(
        90, gt=0, le=86_400, description="How long a claim lasts without extension"
    )
    worker_concurrency: int = Field(100, ge=1, le=100_000, description="Attempts that a worker runs at once")
    worker_grace_sec: float = Field(30, ge=0, le=86_400, description="How long a shutdown waits for attempts")
    worker_poll_sec: float = Field(
        1, gt=0, le=60, description="How often an idle worker looks without a hint"
    )
    worker_health_port: int | None = Field(
        None, ge=0, le=65_535, description="Where `holdfast worker` answers /live, /ready and /metrics"
    )
    worker_health_host: str = Field("127.0.0.1", description="The address that the health port is open on")
    gateway_url: str | None = Field(None, description="Where `JsonGateway` calls if it is told nothing else")
    gateway_timeout_ms: int = Field(
        60_000, ge=1, le=86_400_000, description="How long one of its calls may take, all in all"
    )
    circuit_window: int = Field(20, ge=1, le=1_000, description="ProviderCalls that a breaker looks back on")
    circuit_fail_threshold: float = Field(
        0.5, ge=0, lt=1, description="Part of those calls above which failures open it"
    )
    circuit_cooldown_ms: int = Field(
        30_000, ge=1, le=86_400_000, description="How long it stays open before trials"
    )
    code_version: str = Field(
        "", max_length=200, description="Which version of the application this is; dead letters tell it"
    )
    archive_url: str | None = Field(
        None, description="Where dead letters go when their time is over: a folder, or s3://bucket/prefix"
    )
    archive_key: str | None = Field(
        None,
        min_length=32,
        description="What seals the archive, instead of the store's own key; several by commas, the present one first",
    )
    dead_letter_days: float = Field(7, gt=0, le=36_500, description="How long a dead letter is kept")
    dead_letter_limit: int = Field(10_000, ge=1, description="How many dead letters are kept")
    dead_letter_alert: int = Field(
        100, ge=1, description="Dead letters within a day above which a ticket is raised"
    )
    finished_days: float = Field(30, gt=0, le=36_500, description="How long a job is kept that has ended")
    key_days: float = Field(
        90, gt=0, le=36_500, description="How long a key is kept; nothing runs twice for it meanwhile"
    )
    tickets_per: Literal["letter", "group"] = Field(
        "letter", description="Whether each dead letter is told of, or one for a group with the same cause"
    )
    ticket_webhook_url: str | None = Field(None, description="Where each ticket is posted, as JSON")
    ticket_webhook_secret: str | None = Field(
        None, description="What those posts are signed with; several by commas while a key is rotated"
    )
    ticket_webhook_allow: str | None = Field(
        None, description="Hosts and networks, by commas, that may be reached although they are not public"
    )
    log_level: str = Field(
        "INFO", pattern="(?i)^(debug|info|warning|error)$", description="Least level that is logged"
    )
    log_format: Literal["json", "text"] = Field("json", description="What a log line looks like")

    @property
    def retry_policy(self) -> RetryPolicy:
        """The policy of jobs and stages that declare none."""
        backoff = Backoff.additive(
            base=timedelta(milliseconds=self.retry_base_delay_ms),
            jitter=timedelta(milliseconds=self.retry_jitter_max_ms),
        )
        return RetryPolicy(self.retry_max_attempts, backoff)

    @property
    def breaker(self) -> Breaker:
        """The breaker of providers that declare none; it opens with half its window at the earliest."""
        return Breaker(
            window=self.circuit_window,
            minimum=-(-self.circuit_window // 2),
            threshold=self.circuit_fail_threshold,
            cooldown=timedelta(milliseconds=self.circuit_cooldown_ms),
        )

    @property
    def retention(self) -> Retention:
        """How long what has ended is kept, if nothing else is declared."""
        return Retention(
            letters=timedelta(days=self.dead_letter_days),
            most_letters=self.dead_letter_limit,
            finished=timedelta(days=self.finished_days),
            keys=timedelta(days=self.key_days),
            letters_a_day=self.dead_letter_alert,
        )

    @property
    def gateway_timeout(self) -> timedelta:
        """How long a call may take, of a provider that declares nothing else."""
        return timedelta(milliseconds=self.gateway_timeout_ms)

    @property
    def worker_options(self) -> WorkerOptions:
        """How a worker behaves that is told nothing else."""
        return WorkerOptions(
            slots=self.worker_concurrency,
            lease=timedelta(seconds=self.worker_lease_ttl_sec),
            grace=timedelta(seconds=self.worker_grace_sec),
            poll=timedelta(seconds=self.worker_poll_sec),
        )


def load_settings(**arguments: Any) -> Settings:
    """Read the settings; *arguments* that are not `None` go first.

    Raises `ConfigError` with one line that names the first bad value; for that of a generic name only when
    `ensure_usable` is asked.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    environment, unusable = _Environment(Settings), dict[str, str]()
    variables = {
        name: variable
        for name in Settings.model_fields
        if name not in given and (variable := environment.variable(name)) is not None
    }
    try:
        settings = Settings(**given)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            name = str(each["loc"][0])
            shown = variables.get(name, name)
            # A key that is too short for one is a secret all the same.
            value = "…" if name.endswith(("_key", "_secret")) else repr(each["input"])
            why = f"{shown}={value} is not usable: {each['msg']}"
            if shown != name.upper():
                raise ConfigError(why) from None
            unusable[name] = why
        settings = Settings(**given, **{name: Settings.model_fields[name].default for name in unusable})
    settings._variables, settings._unusable = variables, unusable
    return settings
