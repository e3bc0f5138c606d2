"""Which fault is injected into which call is a function of the script and the calls before."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast_simulator import (
    DOWN,
    Close,
    Drip,
    Fault,
    Flood,
    Hang,
    Hint,
    InvalidJson,
    Moment,
    OverloadedStream,
    RateLimit,
    Refuse,
    Reset,
    Rule,
    Script,
    ScriptError,
    Slow,
    Status,
    Truncate,
    WrongSchema,
)
from holdfast_simulator.codec import fault_from_json, to_json
from holdfast_simulator.http import RequestError, parse_head
from holdfast_simulator.ledger import Effect, Ledger
from holdfast_simulator.rate_limits import rate_limit_answer
from holdfast_simulator.routes import effect_answer
from holdfast_simulator.script import Call, decide, standing_fault

MAIL = Call("POST /effects/mail", key="job-1", body=b'{"to": "ann"}')
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)

EVERY_FAULT: list[Fault] = [
    Status(418, body={"error": "teapot"}, headers={"X-Trace": "1"}, at=Moment.AFTER_EFFECT),
    RateLimit(Hint.NONSENSE, text="NaN", wait=timedelta(seconds=2.5), clock_skew=timedelta(minutes=-3)),
    Slow(timedelta(milliseconds=20), at=Moment.BEFORE_EFFECT),
    Hang(at=Moment.AFTER_EFFECT),
    Reset(at=Moment.BEFORE_READING),
    Close(),
    Truncate(keep=3),
    Drip(timedelta(milliseconds=5)),
    Flood(),
    WrongSchema(body=[1, 2]),
    InvalidJson(text="<html>"),
    OverloadedStream(),
    Refuse(timedelta(seconds=3)),
]


def injected(script: Script, *calls: Call) -> list[str | None]:
    """The kinds of the faults that a series of calls meets."""
    tallies = script.untouched()
    kinds = []
    for call in calls:
        fault, tallies = decide(script, tallies, call)
        kinds.append(fault.kind if fault else None)
    return kinds


def test_a_script_without_rules_lets_every_call_through() -> None:
    assert injected(Script(), MAIL, MAIL) == [None, None]


def test_the_first_rule_that_matches_wins() -> None:
    script = Script.of(Rule(Hang(), route="GET /*"), Rule(Reset()), Rule(Close()))

    assert injected(script, MAIL) == ["reset"]


def test_a_rule_is_spent_after_its_times_and_the_next_one_takes_over() -> None:
    script = Script.of(Rule(Reset(), times=2), Rule(Hang(), times=1))

    assert injected(script, *[MAIL] * 5) == ["reset", "reset", "hang", None, None]


def test_after_and_until_bound_the_calls_that_a_rule_selects() -> None:
    script = Script.of(Rule(Reset(), route="/effects/*", after=1, until=3))
    other = Call("POST /v1/chat/completions")

    assert injected(script, MAIL, other, MAIL, other, MAIL, MAIL) == [
        None,
        None,
        "reset",
        None,
        "reset",
        None,
    ]


def test_a_rule_counts_calls_in_which_an_earlier_rule_injected_a_fault() -> None:
    script = Script.of(Rule(Hang(), times=1), Rule(Reset(), until=2))

    assert injected(script, MAIL, MAIL, MAIL) == ["hang", "reset", None]


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Rule(Hang(), route="/effects/*"), True),
        (Rule(Hang(), route="POST /effects/mail"), True),
        (Rule(Hang(), route="GET /effects/*"), False),
        (Rule(Hang(), route="/effects"), False),
        (Rule(Hang(), key="job-"), True),
        (Rule(Hang(), key="job-2"), False),
        (Rule(Hang(), body='"ann"'), True),
        (Rule(Hang(), body="bob"), False),
        (Rule(Hang(), route="/effects/*", key="job-1", body="bob"), False),
    ],
)
def test_a_rule_matches_only_calls_that_meet_all_of_its_conditions(rule: Rule, matches: bool) -> None:
    assert injected(Script.of(rule), MAIL) == ["hang" if matches else None]


def test_a_call_without_a_key_meets_no_condition_on_keys() -> None:
    assert injected(Script.of(Rule(Hang(), key="job")), Call("POST /effects/mail")) == [None]


def test_a_seed_repeats_and_another_seed_differs() -> None:
    rule = Rule(Reset(), probability=0.5)
    calls = [MAIL] * 64

    assert injected(Script.of(rule, seed=7), *calls) == injected(Script.of(rule, seed=7), *calls)
    assert injected(Script.of(rule, seed=7), *calls) != injected(Script.of(rule, seed=8), *calls)


def test_a_probability_is_kept_over_many_calls() -> None:
    kinds = injected(Script.of(Rule(Reset(), probability=0.2)), *[MAIL] * 5000)

    assert 900 < kinds.count("reset") < 1100


def test_probability_zero_never_injects_a_fault_and_one_always() -> None:
    assert injected(Script.of(Rule(Reset(), probability=0.0)), *[MAIL] * 500) == [None] * 500
    assert injected(Script.of(Rule(Reset(), probability=1.0)), *[MAIL] * 500) == ["reset"] * 500


def test_a_decision_leaves_its_tallies_unchanged() -> None:
    script = Script.of(Rule(Reset(), times=1))
    before = script.untouched()

    decide(script, before, MAIL)

    assert decide(script, before, MAIL).fault == Reset()


def test_a_standing_fault_is_bound_to_its_route() -> None:
    standing = [("/v1/*", DOWN)]

    assert standing_fault(standing, MAIL) is None
    assert standing_fault(standing, Call("POST /v1/chat/completions")) == DOWN
    assert standing_fault([(None, DOWN)], MAIL) == DOWN


@pytest.mark.parametrize("fault", EVERY_FAULT, ids=lambda fault: fault.kind)
def test_every_fault_survives_json(fault: Fault) -> None:
    assert fault_from_json(to_json(fault)) == fault


def test_a_whole_script_survives_json() -> None:
    rules = tuple(Rule(fault, route="/effects/*", times=2, after=1) for fault in EVERY_FAULT)
    script = Script(
        rules, seed=9, honours_keys=False, key_window=timedelta(hours=24), lookup_lag=timedelta(seconds=1.5)
    )

    assert Script.loads(script.dumps()) == script


def test_a_bare_kind_stands_for_the_fault_with_its_defaults() -> None:
    script = Script.loads('{"rules": [{"fault": "hang"}, {"fault": "down"}]}')

    assert [rule.fault for rule in script.rules] == [Hang(), Status(503)]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "not JSON"),
        ("[]", "script: expected an object"),
        ('{"rule": []}', "script: unknown rule"),
        ('{"rules": {}}', "script.rules: expected a list"),
        ('{"rules": [{"fault": "melt"}]}', r"script.rules\[0\].fault: unknown kind 'melt'"),
        ('{"rules": [{"fault": "hang", "times": "2"}]}', r"script.rules\[0\].times: expected int"),
        ('{"rules": [{"fault": {"kind": "slow", "delay": true}}]}', "fault.delay: expected timedelta"),
        ('{"rules": [{"fault": {"kind": "slow", "delay": 1e300}}]}', "fault.delay: 1e[+]300 is too large"),
        ('{"rules": [{"fault": {"kind": "reset", "at": "noon"}}]}', "fault.at: unknown 'noon'"),
        ('{"rules": [{"fault": {"kind": "status", "at": "before_reading"}}]}', "choose before_effect"),
        ('{"rules": [{"times": 2}]}', "missing 1 required"),
        ('{"rules": [{"fault": "hang", "probability": 2}]}', "probability must lie between 0 and 1"),
    ],
)
def test_a_script_that_cannot_be_read_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(ScriptError, match=place):
        Script.loads(text)


@pytest.mark.parametrize(
    ("fault", "name", "text"),
    [
        (RateLimit(Hint.SECONDS, wait=timedelta(seconds=1.2)), "Retry-After", "2"),
        (RateLimit(Hint.FLOAT, wait=timedelta(seconds=1.2)), "Retry-After", "1.200"),
        (
            RateLimit(Hint.HTTP_DATE, wait=timedelta(minutes=1)),
            "Retry-After",
            "Tue, 01 Jan 2030 12:01:00 GMT",
        ),
        (RateLimit(Hint.MILLISECONDS, wait=timedelta(seconds=1.2)), "retry-after-ms", "1200"),
        (RateLimit(Hint.RATELIMIT, wait=timedelta(minutes=6)), "x-ratelimit-reset-requests", "6m0s"),
        (
            RateLimit(Hint.ANTHROPIC, wait=timedelta(seconds=5)),
            "anthropic-ratelimit-requests-reset",
            "2030-01-01T12:00:05Z",
        ),
        (RateLimit(Hint.NONSENSE, text="-5"), "Retry-After", "-5"),
    ],
)
def test_every_hint_is_sent_in_its_own_header(fault: RateLimit, name: str, text: str) -> None:
    answer = rate_limit_answer(fault, now=NOON)

    assert (answer.status, answer.headers[name]) == (429, text)


def test_a_retry_info_stands_in_the_body_alone() -> None:
    answer = rate_limit_answer(RateLimit(Hint.RETRY_INFO, wait=timedelta(seconds=45.837906)), now=NOON)

    assert b'"retryDelay": "45.837906000s"' in answer.body
    assert set(answer.headers) == {"Date"}


def test_a_skewed_clock_moves_the_date_and_the_hint_alike() -> None:
    fault = RateLimit(Hint.HTTP_DATE, wait=timedelta(seconds=10), clock_skew=timedelta(minutes=10))

    headers = rate_limit_answer(fault, now=NOON).headers

    assert headers["Date"] == "Tue, 01 Jan 2030 12:10:00 GMT"
    assert headers["Retry-After"] == "Tue, 01 Jan 2030 12:10:10 GMT"


def an_effect(ledger: Ledger, *, done_at: float) -> Effect:
    effect = Effect(ledger.next_id(), "mail", "k", done_at, effect_answer("eff", "mail", "k", b"null"))
    ledger.add(effect)
    return effect


def test_a_key_is_forgotten_when_its_window_has_passed() -> None:
    ledger, script = Ledger(), Script(key_window=timedelta(seconds=60))
    effect = an_effect(ledger, done_at=100.0)

    assert ledger.remembered("k", script, now=159.9) == effect
    assert ledger.remembered("k", script, now=160.0) is None


def test_a_lookup_finds_an_effect_only_when_its_lag_has_passed() -> None:
    ledger, script = Ledger(), Script(lookup_lag=timedelta(seconds=5))
    effect = an_effect(ledger, done_at=100.0)

    assert ledger.visible("k", script, now=104.9) == []
    assert ledger.visible("k", script, now=105.0) == [effect]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused_as_such(raw: bytes, status: int) -> None:
    with pytest.raises(RequestError) as caught:
        parse_head(raw)

    assert caught.value.status == status
