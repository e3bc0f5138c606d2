"""The dead-letter service: the operations of an operator on one dead letter, or on all that a filter selects.

A step that is not allowed for a single letter raises an error; for many letters, the result lists the refused ones.
"""

from holdfast.engine.dead_letters.archive_access import ArchiveAccess
from holdfast.engine.dead_letters.letter_repair import LetterRepair
from holdfast.engine.dead_letters.replay_planner import ReplayPlanner


class DeadLetterService(LetterRepair, ReplayPlanner, ArchiveAccess):
    """The operations of an operator on dead letters. Reached as `hold.dead_letters`.

    A *selection* is one letter, by its job's id, or all that a `LetterFilter` selects. A step that a single letter does
    not allow raises `StepRefused`; of several letters, `BulkResult.refused` says why. With *dry_run* nothing is changed.
    """
