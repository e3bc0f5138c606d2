"""A store beside the model of what it promises: both must give the same answer to every command.

Each command is run on both at the same instant of a stopped clock. After each, all rows are
compared, and the histories of the jobs that changed; at the end everything is, and the tables are checked by
rules that need no model.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Any

import hypothesis
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.core.errors import HoldfastError
from holdfast.core.jobs.job import Job, JobFilter
from holdfast.ports import Store
from tests import invariants
from tests.stateful import commands
from tests.stateful.commands import ALL, LEASES, WORKERS
from tests.stateful.conftest import Bench
from tests.stateful.equivalence import comparable, difference
from tests.stateful.model import Model
from tests.stateful.outcomes import outcomes
from tests.stateful.run_state import Command, RunState, command

TICK = timedelta(milliseconds=1)
"""How long a command takes: no two of them happen at the same instant."""


class StoreMachine(RuleBasedStateMachine):
    """Runs every command on the model and on the store of *bench*. *seen* counts the outcomes."""

    def __init__(self, bench: Bench, seen: Counter[str]) -> None:
        super().__init__()
        self.bench = bench
        self.seen = seen
        self.state = RunState()
        self.model = self.state.model
        self.compared: dict[str, tuple[Job, int]] = {}
        self.agreed = True
        bench.wipe()

    @initialize(first=commands.to_begin_with())
    def begin(self, first: Command) -> None:
        """Begin with a claimed job, so that there is always a lease to write under."""
        self.do(first)
        self.do(command("claim", WORKERS[0], "default", limit=1, lease=LEASES[0]))

    # One rule for all actors: of several, Hypothesis leaves out half in each example, and an example without
    # submitters, without workers or without moving time reaches few states.
    @rule(command=commands.of_any_actor())
    def step(self, command: Command) -> None:
        self.do(command)
        self.compare()

    def compare(self) -> None:
        """Compare all rows, and all that can be read of the jobs that changed."""
        self.same(command("find", JobFilter(limit=ALL)))
        state = {job.id: (job, len(self.model.events(job.id))) for job in self.model.jobs.values()}
        changed = [job_id for job_id, now in state.items() if self.compared.get(job_id) != now]
        self.compared = state
        self.everything_is_alike(changed)

    def teardown(self) -> None:
        if self.agreed:  # else the difference was reported already, and this would hide it
            self.everything_is_alike(list(self.model.jobs))
            self.same(command("queues.counts"))
            self.the_books_balance()

    def everything_is_alike(self, job_ids: list[str]) -> None:
        """Compare all that can be read of these jobs."""
        for job_id in job_ids:
            self.same(command("get", job_id, owner=self.model.jobs[job_id].owner))
            self.same(command("events", job_id))
            self.same(command("stages", [job_id]))
            self.same(command("signals", [job_id]))

    def the_books_balance(self) -> None:
        """Check the tables by rules that need no model; events that change no state are ignored."""
        world = self.bench.ask(invariants.read_world(self.bench.url))
        changes = [event for event in world.events if event["kind"] not in ("stage", "warning")]
        invariants.the_books_balance(replace(world, events=changes))
        invariants.nothing_completed_twice(world)

    def do(self, command: Command) -> None:
        """Run a command and move the clock on by a tick; `wait_until` only moves the clock."""
        if command.operation == "wait_until":
            [self.model.now] = command.args
            return
        before = dict(self.model.jobs)
        self.bench.set_clock(self.model.now)
        answer = self.same(command)
        self.model.now += TICK
        self.state.remember(command, answer)
        for outcome in outcomes(command, answer, before):
            self.seen[outcome] += 1
            hypothesis.event(outcome)

    def same(self, command: Command) -> Any:
        """Run *command* on model and store, and return the answer, which must be the same."""
        self.agreed = False
        promised = _outcome(lambda: _call_model(self.model, command))
        answered = _outcome(lambda: self.bench.ask(_call_store(self.bench.store, command)))
        assert comparable(answered) == comparable(promised), (
            f"{command}\nis not answered as promised\n{difference(answered, promised)}"
        )
        self.agreed = True
        return promised


def _call_model(model: Model, command: Command) -> Any:
    """Call an operation of the model, which has no parts."""
    return getattr(model, command.operation.rpartition(".")[2])(*command.args, **command.options)


def _call_store(store: Store, command: Command) -> Any:
    return attrgetter(command.operation)(store)(*command.args, **command.options)


def _outcome(ask: Callable[[], Any]) -> Any:
    """Return the answer, or the error that was raised."""
    try:
        return ask()
    except HoldfastError as error:
        return error
