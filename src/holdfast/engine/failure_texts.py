"""The texts of failures are written one at a time, the long ones in a thread: the loop has leases to extend meanwhile."""

import asyncio
from functools import partial

from holdfast.core.classify import Classifier, Judged
from holdfast.core.failures import Failure
from holdfast.ports import Executor


class FailureTexts:
    """Writes messages and stacks of the failures of one worker.

    However many attempts fail at once, the loop gets a turn between any two. Texts of more than 2,000 characters are
    redacted by *executor*, if there is one. One at a time: regular expressions hold the interpreter's lock, and several
    threads would keep the loop from it, in turns, without being any faster.
    """

    def __init__(self, classifier: Classifier, executor: Executor | None = None) -> None:
        self._classifier = classifier
        self._executor = executor
        self._turn = asyncio.Lock()

    def judge(self, error: BaseException) -> Judged:
        """Say what an error means, at once."""
        return self._classifier.judge(error)

    async def write(self, judged: Judged) -> Failure:
        """Add the words. Cancelled, it leaves nothing behind but, perhaps, a thread that goes on for some milliseconds."""
        async with self._turn:
            if self._executor is not None and judged.is_long:
                try:
                    return await self._executor.run(partial(self._classifier.word, judged))
                except RuntimeError:
                    pass  # the machine has no thread left: the text is bounded, and the loop can spare the time
            await asyncio.sleep(0)
            return self._classifier.word(judged)
