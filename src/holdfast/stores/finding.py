"""How a filter becomes one statement: only the conditions that are set, so that each can use its index.

A condition such as `:name IS NULL OR name = :name` fits every filter and no index. The fragments are constants of this
module; what a caller gives is bound, never formatted in.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.core.jobs.job import JobFilter
from holdfast.core.jobs.states import Status
from holdfast.stores.queries import Statements

FILTERS = "/* filters */"
"""Where the conditions go in `find_live`, `find_ended` and `find_purged`."""

STATUSES = {status: f"status = '{status.value}'" for status in Status}
"""Constants and not values: the indexes of failed and of cancelled jobs are partial."""


class Condition(NamedTuple):
    """One condition of a statement; `{}` stands for its value, which is bound as *name*."""

    text: str
    name: str
    value: Any


def conditions(wanted: JobFilter) -> list[Condition]:
    """Name what *wanted* asks of a row, beside its status and its page."""
    found = []
    if wanted.name is not None:
        found.append(Condition("name = {}", "name", wanted.name))
    if wanted.owner is not None:
        # The index leaves the default out, which most rows have.
        text = "owner = {} AND owner <> ''" if wanted.owner else "owner = {}"
        found.append(Condition(text, "owner", wanted.owner))
    if wanted.queue is not None:
        text = "queue = {} AND queue <> 'default'" if wanted.queue != "default" else "queue = {}"
        found.append(Condition(text, "queue", wanted.queue))
    if wanted.subject is not None:
        found.append(Condition("subject = {}", "subject", wanted.subject))
    if wanted.version is not None:
        found.append(Condition("version = {}", "version", wanted.version))
    return found


def find_statement(
    sql: Statements, wanted: JobFilter, bind: Callable[[str, Any], str], *, before: str, keys: str
) -> str:
    """Write the statement that finds what is *wanted*, newest first.

    *bind* takes a name and a value and gives the placeholder; *before* is the condition of a page that ends at an id,
    *keys* the table of keys.
    """
    asked = conditions(wanted)
    if wanted.key is not None:
        asked.append(Condition(f"id IN (SELECT job_id FROM {keys} WHERE key = {{}})", "key", wanted.key))  # noqa: S608 - a constant
    if wanted.before is not None:
        asked.append(Condition(before, "before", wanted.before))
    texts = [condition.text.format(bind(condition.name, condition.value)) for condition in asked]
    if wanted.status is not None:
        texts.insert(0, STATUSES[wanted.status])
    limit = bind("limit", wanted.limit)
    restriction = "".join(f" AND {text}" for text in texts)
    parts = [
        f"SELECT * FROM ({sql[name].replace(FILTERS, restriction)} LIMIT {limit}) AS {name}"  # noqa: S608 - constants and placeholders
        for name in _tables(wanted.status)
    ]
    return "\n UNION ALL\n".join(parts) + f"\n ORDER BY id DESC LIMIT {limit}"


def _tables(status: Status | None) -> list[str]:
    """Name the parts that can have a job of that status: the others would be read from end to end for nothing."""
    if status is None:
        return ["find_live", "find_ended", "find_purged"]
    return ["find_ended", "find_purged"] if status.ended else ["find_live"]
