"""Turns a filter into one statement with only the conditions that are set, so that each can use its index.

A condition such as `:name IS NULL OR name = :name` fits every filter and no index. The fragments are constants of this
module; values from a caller are bound, never formatted in.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.core.jobs.job import JobFilter
from holdfast.core.jobs.states import Status
from holdfast.stores.queries import Queries

FILTERS = "/* filters */"
"""Where the conditions go in `find_live`, `find_ended` and `find_purged`."""

STATUSES = {status: f"status = '{status.value}'" for status in Status}
"""Constants and not values: the indexes of failed and of cancelled jobs are partial."""


class Condition(NamedTuple):
    """One condition of a statement; `{}` stands for its value, which is bound as *name*."""

    text: str
    name: str
    value: Any


def conditions(job_filter: JobFilter) -> list[Condition]:
    """Return the conditions of *job_filter* on a row, apart from its status and its page."""
    found = []
    if job_filter.name is not None:
        found.append(Condition("name = {}", "name", job_filter.name))
    if job_filter.owner is not None:
        # The index leaves the default out, which most rows have.
        text = "owner = {} AND owner <> ''" if job_filter.owner else "owner = {}"
        found.append(Condition(text, "owner", job_filter.owner))
    if job_filter.queue is not None:
        text = "queue = {} AND queue <> 'default'" if job_filter.queue != "default" else "queue = {}"
        found.append(Condition(text, "queue", job_filter.queue))
    if job_filter.subject is not None:
        found.append(Condition("subject = {}", "subject", job_filter.subject))
    if job_filter.version is not None:
        found.append(Condition("version = {}", "version", job_filter.version))
    return found


def find_statement(
    sql: Queries, job_filter: JobFilter, bind: Callable[[str, Any], str], *, before: str, keys: str
) -> str:
    """Return the statement that finds the jobs that match *job_filter*, newest first.

    *bind* takes a name and a value and returns the placeholder; *before* is the condition of a page that ends at an id,
    *keys* the table of keys.
    """
    found = conditions(job_filter)
    if job_filter.key is not None:
        found.append(Condition(f"id IN (SELECT job_id FROM {keys} WHERE key = {{}})", "key", job_filter.key))  # noqa: S608 - a constant
    if job_filter.before is not None:
        found.append(Condition(before, "before", job_filter.before))
    texts = [condition.text.format(bind(condition.name, condition.value)) for condition in found]
    if job_filter.status is not None:
        texts.insert(0, STATUSES[job_filter.status])
    limit = bind("limit", job_filter.limit)
    restriction = "".join(f" AND {text}" for text in texts)
    parts = [
        f"SELECT * FROM ({sql[name].replace(FILTERS, restriction)} LIMIT {limit}) AS {name}"  # noqa: S608 - constants and placeholders
        for name in _tables(job_filter.status)
    ]
    return "\n UNION ALL\n".join(parts) + f"\n ORDER BY id DESC LIMIT {limit}"


def _tables(status: Status | None) -> list[str]:
    """Return the statements that can find a job of that status: the others would read whole tables for nothing."""
    if status is None:
        return ["find_live", "find_ended", "find_purged"]
    return ["find_ended", "find_purged"] if status.ended else ["find_live"]
