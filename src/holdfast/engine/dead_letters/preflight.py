"""The preflight: checks whether dead letters can be replayed, without running anything."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from holdfast.core.dead_letters.letter import Letter, LetterState
from holdfast.core.dead_letters.replay_plan import Facts, PreflightCheck, checks
from holdfast.core.envelope import ensure_open
from holdfast.core.errors import ConfigError, HoldfastError, JobNotFound, PayloadInvalid
from holdfast.core.jobs.job import Job
from holdfast.core.jobs.stages import StageRow, StageStatus
from holdfast.engine.providers.availability import unavailable_providers
from holdfast.engine.registry import JobSpec
from holdfast.engine.runtime import Runtime
from holdfast.ports import Store

AT_ONCE = 20
"""Jobs that are read concurrently."""


class Preflight:
    """Checks failed jobs against the declared code, their providers and the schema."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._registry = runtime.registry
        self._redact = runtime.redactor
        self._code_version = runtime.letters.code_version

    async def check(
        self, letters: Sequence[Letter], *, restart: bool
    ) -> list[tuple[Letter, list[PreflightCheck]]]:
        """Return each letter with its checks, passed and failed."""
        ids = [letter.job_id for letter in letters]
        behind = await self._schema_is_behind()
        unavailable = await unavailable_providers(self._store, [letter.provider for letter in letters])
        begun = {row.token for row in await self._store.replay_plans.running()}
        jobs = dict(zip(ids, await read_jobs(self._store, ids), strict=True))
        stages: dict[str, list[StageRow]] = {}
        for row in await self._store.stages(ids):
            stages.setdefault(row.job_id, []).append(row)
        found = []
        for letter in letters:
            facts = self._facts(jobs[letter.job_id], stages.get(letter.job_id, []))
            waits_in = letter.plan if letter.state is LetterState.VALIDATED and letter.plan in begun else None
            facts = replace(
                facts, unavailable=unavailable.get(letter.provider, ""), schema=behind, plan=waits_in or ""
            )
            found.append((letter, checks(letter, facts, restart=restart)))
        return found

    async def corrected(self, letter: Letter, correct: Mapping[str, Any]) -> str:
        """Return a job's arguments with some of them changed, validated. Raises `PayloadInvalid`."""
        spec = self._registry.get(letter.name)
        if spec is None:
            raise ConfigError(
                f"no job named {letter.name!r} is declared here; import the module that declares it"
            )
        args = (await self._store.get(letter.job_id)).args
        ensure_open(args, f"an argument of job {letter.name!r}")
        present = json.loads(args)
        unknown = sorted(set(correct) - set(spec.signature.names))
        if unknown:
            raise PayloadInvalid(
                f"job {letter.name!r} has no argument {unknown[0]!r}; it has {', '.join(spec.signature.names)}"
            )
        return spec.signature.checked_args(_json({**present, **correct}))

    async def _schema_is_behind(self) -> str:
        schema = await self._store.schema_state()
        if schema.current:
            return ""
        return f"the database has schema {schema.found}, the code expects {schema.expected}"

    def _facts(self, job: Job | None, rows: Sequence[StageRow]) -> Facts:
        if job is None:
            return Facts(gone=True, code_version=self._code_version)
        spec = self._registry.get(job.name)
        if spec is None:
            return Facts(declared=False, code_version=self._code_version)
        done = [row for row in rows if row.status is StageStatus.DONE and not row.key.is_wait]
        return Facts(
            # The error of an application's type may quote the value it was given.
            input_refused=self._redact(_why_refused(spec, job.args)),
            misfits=[self._redact(why) for row in done if (why := self._misfit(spec, row))],
            finished=[str(row.key) for row in done],
            code_version=self._code_version,
        )

    def _misfit(self, spec: JobSpec, row: StageRow) -> str:
        """Return why a stored result does not fit the code any more; empty if it does."""
        stage = spec.stages.get(row.key.name)
        if stage is None:
            return (
                "" if row.key.name in self._registry.stages else f"no stage {row.key.name!r} is declared here"
            )
        try:
            stage.signature.load_result(row.result or "null")
        except (HoldfastError, ValidationError) as error:
            why = (
                error.errors(include_url=False, include_input=False)[0]["msg"]
                if isinstance(error, ValidationError)
                else error
            )
            return f"the stored result of stage {row.key} does not fit: {why}"
        return ""


async def read_jobs(store: Store, job_ids: Sequence[str]) -> list[Job | None]:
    """Read the jobs of letters concurrently; `None` for one that was purged, or archived with its letter."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def read(job_id: str) -> Job | None:
        async with slots:
            try:
                return await store.get(job_id)
            except JobNotFound:
                return None

    return await asyncio.gather(*map(read, job_ids))


def _json(args: Mapping[str, Any]) -> str:
    """Write arguments as JSON, values of Python types included. Raises `PayloadInvalid`."""
    try:
        return to_json(args).decode()
    except PydanticSerializationError as error:
        raise PayloadInvalid(f"a corrected argument cannot be stored as JSON: {error}") from None


def _why_refused(spec: JobSpec, args: str) -> str:
    try:
        spec.signature.checked_args(args)
    except HoldfastError as refusal:
        return str(refusal)
    return ""
