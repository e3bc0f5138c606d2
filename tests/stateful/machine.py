"""A store beside the model of what it promises: whatever is asked, both must answer alike.

Each act is put to both at the same instant of a clock that stands still in between. After each, all rows are
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
from tests.stateful import actions
from tests.stateful.actions import ALL, LEASES, WORKERS
from tests.stateful.conftest import Bench
from tests.stateful.equivalence import comparable, difference
from tests.stateful.model import Model
from tests.stateful.outcomes import happenings
from tests.stateful.scene import Act, Scene, act

TICK = timedelta(milliseconds=1)
"""How long an act takes: no two of them happen at the same instant."""


class StoreMachine(RuleBasedStateMachine):
    """Puts every act to the model and to the store on *bench*. *seen* counts what came of them."""

    def __init__(self, bench: Bench, seen: Counter[str]) -> None:
        super().__init__()
        self.bench = bench
        self.seen = seen
        self.scene = Scene()
        self.model = self.scene.model
        self.compared: dict[str, tuple[Job, int]] = {}
        self.agreed = True
        bench.wipe()

    @initialize(first=actions.to_begin_with())
    def begin(self, first: Act) -> None:
        """Begin with a job that somebody has claimed, so that there is always a lease to write under."""
        self.do(first)
        self.do(act("claim", WORKERS[0], "default", limit=1, lease=LEASES[0]))

    # One rule for everybody: of several, Hypothesis leaves out half in each example, and a day without
    # submitters, without workers or without time is a day on which little happens.
    @rule(act=actions.of_anybody())
    def step(self, act: Act) -> None:
        self.do(act)
        self.compare()

    def compare(self) -> None:
        """Compare all rows, and all that can be read of the jobs that changed."""
        self.same(act("find", JobFilter(limit=ALL)))
        state = {job.id: (job, len(self.model.events(job.id))) for job in self.model.jobs.values()}
        changed = [job_id for job_id, now in state.items() if self.compared.get(job_id) != now]
        self.compared = state
        self.everything_is_alike(changed)

    def teardown(self) -> None:
        if self.agreed:  # else the difference was found already, and this would only hide it
            self.everything_is_alike(list(self.model.jobs))
            self.same(act("queues.counts"))
            self.the_books_balance()

    def everything_is_alike(self, job_ids: list[str]) -> None:
        """Compare all that can be read of these jobs."""
        for job_id in job_ids:
            self.same(act("get", job_id, owner=self.model.jobs[job_id].owner))
            self.same(act("events", job_id))
            self.same(act("stages", [job_id]))
            self.same(act("signals", [job_id]))

    def the_books_balance(self) -> None:
        """Check the tables by rules that need no model; events that change no state are none of their business."""
        world = self.bench.ask(invariants.read_world(self.bench.url))
        changes = [event for event in world.events if event["kind"] not in ("stage", "warning")]
        invariants.the_books_balance(replace(world, events=changes))
        invariants.nothing_completed_twice(world)

    def do(self, act: Act) -> None:
        """Have something done, and let the clock move on; or do nothing but wait for it."""
        if act.operation == "wait_until":
            [self.model.now] = act.args
            return
        before = dict(self.model.jobs)
        self.bench.set_clock(self.model.now)
        answer = self.same(act)
        self.model.now += TICK
        self.scene.remember(act, answer)
        for happening in happenings(act, answer, before):
            self.seen[happening] += 1
            hypothesis.event(happening)

    def same(self, act: Act) -> Any:
        """Ask model and store, and give their answer, which must be one."""
        self.agreed = False
        promised = _outcome(lambda: _promised(self.model, act))
        answered = _outcome(lambda: self.bench.ask(_asked(self.bench.store, act)))
        assert comparable(answered) == comparable(promised), (
            f"{act}\nis not answered as promised\n{difference(answered, promised)}"
        )
        self.agreed = True
        return promised


def _promised(model: Model, act: Act) -> Any:
    """Ask the model, which has no parts."""
    return getattr(model, act.operation.rpartition(".")[2])(*act.args, **act.options)


def _asked(store: Store, act: Act) -> Any:
    return attrgetter(act.operation)(store)(*act.args, **act.options)


def _outcome(ask: Callable[[], Any]) -> Any:
    """Give the answer, or the refusal."""
    try:
        return ask()
    except HoldfastError as error:
        return error
