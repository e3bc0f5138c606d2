"""A batch of received messages: each is answered as if they had been received one by one."""

from holdfast.core.jobs.job import Receipt
from holdfast.core.jobs.states import Status
from holdfast.core.messages.inbox import EarlierMessage, InboxAnswer, InboxItem, InboxOutcome
from holdfast.core.messages.reception import Reception
from tests.builders import a_job

NEW, REPEATED, CONFLICT, FAILED = InboxOutcome


def a_message(message_id: str, says: str = "one") -> InboxItem:
    return InboxItem(message_id, says, a_job(key=message_id))


def outcomes(answers: list[InboxAnswer]) -> list[InboxOutcome]:
    return [answer.outcome for answer in answers]


def test_messages_are_recorded_once_each_in_the_order_of_their_ids() -> None:
    first = a_message("a")

    reception = Reception([a_message("b"), first, a_message("a")])

    assert [item.message_id for item in reception.items] == ["a", "b"]
    assert reception.items[0] is first


def test_of_equal_messages_in_a_batch_the_first_is_new_and_the_others_are_repetitions() -> None:
    first, second = a_message("a"), a_message("a")
    reception = Reception([first, second])

    reception.recorded(first)

    assert outcomes(reception.answers({})) == [NEW, REPEATED]
    assert reception.repeated == {"a": first.job_id}
    assert reception.jobs == {}


def test_a_message_of_the_batch_that_says_something_else_is_a_conflict() -> None:
    first = a_message("a")
    reception = Reception([first, a_message("a", "another")])

    reception.recorded(first)

    assert outcomes(reception.answers({})) == [NEW, CONFLICT]
    assert reception.repeated == {}


def test_the_answer_to_a_repeated_message_names_the_state_of_its_job() -> None:
    reception = Reception([a_message("a"), a_message("b")])
    reception.found("a", EarlierMessage("one", "job-a"))
    reception.found("b", EarlierMessage("one", None))

    answers = reception.answers({"job-a": Status.COMPLETED})

    assert answers == [InboxAnswer(REPEATED, "job-a", Status.COMPLETED), InboxAnswer(REPEATED)]
    assert reception.repeated == {"a": "job-a"}


def test_a_message_whose_job_is_stored_already_was_written_by_an_earlier_try() -> None:
    item = a_message("a")
    reception = Reception([item])

    reception.found("a", EarlierMessage("one", item.job_id))

    assert reception.answers({}) == [InboxAnswer(NEW, item.job_id)]


def test_a_job_that_was_made_for_a_message_is_named_in_its_row() -> None:
    asked = InboxItem("a", "one")
    made = asked._replace(work=a_job(key="a"))
    reception = Reception([asked])

    reception.submitted(made, Receipt(made.job_id or ""))

    assert reception.jobs == {"a": made.job_id}
    assert reception.answers({}) == [InboxAnswer(NEW, made.job_id)]


def test_an_earlier_job_with_the_key_stands_for_a_message_whose_row_was_deleted() -> None:
    item = a_message("a")
    reception = Reception([item])

    reception.submitted(item, Receipt("job-1", existing=True))

    assert reception.jobs == {"a": "job-1"}
    assert reception.unrecorded == []
    assert outcomes(reception.answers({})) == [REPEATED]


def test_a_message_that_contradicts_the_job_with_its_key_leaves_no_row() -> None:
    item = a_message("a")
    reception = Reception([item])

    reception.submitted(item, Receipt("job-1", existing=True, payload_differs=True))

    assert reception.unrecorded == ["a"]
    assert reception.answers({}) == [InboxAnswer(CONFLICT, "job-1")]


def test_a_message_that_failed_leaves_no_row_and_the_others_are_answered() -> None:
    bad, good, error = a_message("a"), a_message("b"), ValueError("no")
    reception = Reception([bad, good])

    reception.failed(bad, error)
    reception.recorded(good)

    assert reception.unrecorded == ["a"]
    assert reception.answers({}) == [InboxAnswer(FAILED, error=error), InboxAnswer(NEW, good.job_id)]
