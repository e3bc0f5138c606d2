"""The engine: it moves data between the decisions in `core` and the environment behind `ports`.

The path of a job:

    declare   registry (what this process can run), signature (arguments and result as JSON)
    submit    submitter, which shares inserts through `aio/batcher`; recurring jobs: worker/scheduler
    claim     claiming/claimer (the loop), claiming/slots (attempts held, free slots), claiming/claim_signal (when to
              claim again), claiming/wake_ups (which worker reacts to a notification), claiming/lost_claims
    start     claiming/launcher, claiming/state_reader (stored stages and signals), claiming/quarantine (suspected of
              crashing workers), worker/unrunnable (name unknown or not decodable here)
    run       execution/attempt (one attempt, from claim to transition), execution/execution_state (the state that the modules of an
              attempt share), execution/job_context (the job as its code reaches it; `current()` is in
              `app/current`), execution/stages, execution/stage_writer, execution/suspension (sleep, signals, children),
              execution/provider_calls (permits), execution/invoke (the call, thread, timeout), execution/context (current job, stage and calls), execution/interrupts (exceptions
              that unwind the function), execution/attempt_failures (errors as failures; `core/failures/classifier`
              classifies and redacts them), execution/attempt_runtime (its dependencies)
    lease     leases/lease_keeper (extends, stops at deadlines), leases/cancel_watcher (requests to cancel),
              leases/lease_guard (extends them from a thread while the event loop is blocked)
    settle    worker/settler, which writes transitions in batches, fenced by their lease tokens;
              worker/attempt_reporter (logs and metrics), worker/attempt_outcome (what is written and reported)
    requeue   worker/maintenance (due, woken, expired and reclaimed jobs), providers/releaser (held jobs)
    result    result_waiter (a caller outside the job waits for its end)

Calls to providers, `providers/`: admission (permit or refusal), provider_link (a worker's link to a provider), which consists of
provider_cache (the shared state as last read), outcome_buffer (outcomes to report), local_limits and limiter (what this
worker has of the limits) and exchanger (when it exchanges with the store); shared_state (the row that all workers
share), availability (which providers refuse calls), releaser (releases held jobs as fast as the provider accepts calls),
provider_service (operations of an operator).

Dead letters, `dead_letters/`: a trigger of the database writes a letter when a job ends as failed (`bury`, in the
migrations `0004_dead_letters.sql`), whichever statement ends it. dead_letter_service (operations of an operator: letter_repair,
replay_planner and archive_access, on what letter_selection reads), preflight (can it be replayed?), replayer (carries
out replay plans), auto_replayer (plans without an operator), ticket_notifier (log and hooks), archiver (archive and
retention), restorer (back from the archive).

Messages, `messages/`: broker_clients (one client per broker and worker, for its relay and its consumers). `relays/`: relay
(publishes what is in the outbox), which consists of batch_publisher (publishes a batch), partition_leases (the partitions
that it has), broker_availability (admits messages to brokers) and relay_reporter (logs and counts); relay_runner (a relay
without a worker).

Operators, `operations/`: store_access (opens the store for a service, and runs it for code without an event loop),
job_service, queue_service, schedule_service; the services of providers and dead letters are in their packages.

Shared by all: runtime (the dependencies), options, service (the loop of a background service), store_retry and
store_availability (outages of the store), naming (log fields), worker/garbage_collector (tunes Python's).

Fleets, `fleets/`: jobs of queues that Celery or arq workers serve are not claimed by a worker. dispatcher (sends the ids
of ready jobs to the fleet's broker), fleet_runner (runs a dispatched job inside a process of the fleet). How a job reaches
a fleet is in `holdfast.celery` and `holdfast.arq`.

`worker/job_runner` runs what is claimed: it connects launcher, settler, lease keeper and cancel watcher, for a worker and
for a fleet alike. `worker/worker` claims for it, starts the other services (maintenance, releaser, scheduler, replayers,
notifier, archiver, relay, dispatchers) and shuts down (worker/stop_request).
Decisions are in `core`: `jobs/transitions` (retry or end), `failures/backoff` (delay), `failures/classifier`,
`providers/permission` (may a call be made), `providers/provider_state` (how many held jobs are released;
`providers/ramp` for those of a breaker). How rows are written is in `stores`.
"""
