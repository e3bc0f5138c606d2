"""The engine: it moves data between the decisions in `core` and the world behind `ports`.

The path of a job:

    declare   registry (what this process can run), signature (arguments and result as JSON)
    submit    submitter, which shares inserts through batcher; recurring jobs: worker/scheduler
    claim     worker/worker (the loop), worker/wake_ups (which worker reacts to a notification)
    prepare   worker/state_reader (stored stages and signals), worker/quarantine (suspected of crashing workers),
              worker/unrunnable (name unknown or not decodable here), worker/lost_claims (answer of a claim lost)
    run       execution/attempt (one attempt, from claim to transition), execution/invoke (the call, thread, timeout),
              execution/stages, execution/suspension (sleep, signals, children), execution/provider_calls (permits),
              execution/in_flight (may the job be parked?), execution/context (current attempt, stage and calls),
              execution/interrupts (exceptions that unwind the function), execution/failure_texts (redacted messages)
    lease     worker/lease_keeper (extends, cancels, stops at deadlines), worker/lease_guard (a thread: the loop blocks)
    settle    worker/settler, which writes transitions in batches, fenced by their lease tokens; logs and metrics
    requeue   worker/maintenance (due, woken, expired and reclaimed jobs), providers/releaser (held jobs)
    result    result_waiter (a caller outside the job waits for its end)

Calls to providers, `providers/`: admission (permit or refusal), limiter (rate limits of this process), link (a provider
as this worker knows it), shared_state (the row that all workers share), availability (which providers refuse calls),
releaser (releases held jobs as fast as the provider accepts calls), service (operations of an operator).

Dead letters, `dead_letters/`: service (operations of an operator), preflight (can it be replayed?), replayer (carries
out replay plans), auto_replayer (plans without an operator), ticket_notifier (log and hooks), archiver (archive and
retention), restorer (back from the archive).

Operators, `operations/`: access (opens the store for a service, and runs it for code without an event loop),
job_service, queue_service, schedule_service; the services of providers and dead letters are in their packages.

Shared by all: runtime (the dependencies), options, service (the loop of a background service), store_retry and
store_availability (outages of the store), naming (log fields), worker/garbage_collector (tunes Python's).

The worker starts the services of `worker/`, the releaser, and the replayers, notifier and archiver of `dead_letters/`.
What a decision is (a retry, a breaker, a deadline) is in `core`; how rows are written is in `stores`.
"""
