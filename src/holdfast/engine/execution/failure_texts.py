"""Messages and stacks of failures: redacted one at a time, long ones in a thread, so that the event loop stays free."""

import asyncio
from functools import partial

from holdfast.core.failures.classifier import Classifier, Judged
from holdfast.core.failures.failure import Failure
from holdfast.ports import Executor


class FailureTexts:
    """Writes messages and stacks of the failures of one worker.

    However many attempts fail at once, the event loop runs between any two. Texts of more than 2,000 characters are
    redacted by *executor*, if there is one. One at a time: regular expressions hold the interpreter's lock, and several
    threads would keep the loop from it without being any faster.
    """

    def __init__(self, classifier: Classifier, executor: Executor | None = None) -> None:
        self._classifier = classifier
        self._executor = executor
        self._turn = asyncio.Lock()

    def judge(self, error: BaseException) -> Judged:
        """Classify an error, without its text."""
        return self._classifier.judge(error)

    async def write(self, judged: Judged) -> Failure:
        """Add message and stack. When cancelled, a thread may run on for some milliseconds."""
        async with self._turn:
            if self._executor is not None and judged.is_long:
                try:
                    return await self._executor.run(partial(self._classifier.render, judged))
                except RuntimeError:
                    pass  # no thread is available: the text is bounded, so the loop is blocked only briefly
            await asyncio.sleep(0)
            return self._classifier.render(judged)
