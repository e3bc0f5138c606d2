/*
 * One job, a few workers, a database, a provider and a person.
 *
 * The job has one stage, and the stage makes one call. Each step below is one statement of the database, one
 * message, or one thing that goes wrong; between any two steps any other process may move. There is no clock: a
 * lease may run out at any moment, which is worse than any clock can be.
 *
 * A run is this file below a few #defines, which variants.py lists: how large the world is, what is done about
 * the effect, which promises are checked, and which mistake is made on purpose. Without a mistake, this is the
 * protocol as Holdfast has it.
 */

/* ---- How large the world is ------------------------------------------------------------------------- */

#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef BUDGET
#define BUDGET 2    /* attempts for each stage */
#endif
#ifndef FAULTS
#define FAULTS 4    /* crashes, pauses past the lease, lost answers and shutdowns, taken together */
#endif
#ifndef REPLAYS
#define REPLAYS 1   /* how often the person may replay a failed job */
#endif

#ifdef KEY_CHANGES_WITH_ATTEMPT
#define KEYS (BUDGET + 1)
#else
#define KEYS (REPLAYS + 1)
#endif

/* ---- What may be promised: CHECK is a sum of these --------------------------------------------------- */

#define ONE_COMPLETION   1
#define NO_STALE_WRITE   2
#define WITHIN_BUDGET    4
#define NEVER_STUCK      8
#define NEVER_TWICE     16
#define ONCE_FOR_ALL    32
#define NEVER_MISSED    64
#define EXACTLY_ONCE   128
#define TRUE_RECORD    256
#define KNOWN_OUTCOME  512

#ifndef CHECK
#define CHECK 0
#endif

#define promise(which, kept) \
    if \
    :: ((CHECK) & (which)) && !(kept) -> assert(false) \
    :: else \
    fi

/* ---- The world ---------------------------------------------------------------------------------------- */

mtype = { queued, processing, completed, failed };      /* the job */
mtype = { pending, sending, sent };                     /* what the database says about the effect */
mtype = { idle, marking, asking, calling, waiting, storing, completing,
          refused, unsure, giving_up };                 /* what a worker is about to do */
mtype = { silence, yes, no };                           /* the provider's answer */

/* The row in the database. */
mtype status = queued;
mtype effect = pending;
byte token;
byte attempt;
bool stored;                /* the stage's result */
bool overdue;               /* the lease has expired, and no worker has reclaimed it yet */

/* What each worker knows. */
mtype at[WORKERS] = idle;
byte shown[WORKERS];        /* what it shows with every write: the token of its claim */
byte key[WORKERS];          /* what it sends along with its call */
bool looked[WORKERS];       /* for the mistake of looking first and writing later */

/* The network and the provider. */
bool in_flight[WORKERS];    /* a request whose sender waits for the answer */
mtype answer[WORKERS] = silence;
byte abandoned[KEYS];          /* abandoned requests, which may still arrive */
bool remembered[KEYS];      /* keys that the provider has seen */
byte effects;

/* What no process in the model can see. */
bool holds[WORKERS];        /* whose lease it is, whatever the tokens say */
byte completions;
byte begun;                 /* attempts at the present stage that were not returned */
byte replays;
bool closed;                /* the person is done with the job */
byte faults = FAULTS;

byte n;                     /* counts, and is zero between steps */

#define name(w) ('A' + w)
#define ended (status == completed || status == failed)
#define quiet(w) (at[w] == idle)
#define at_work(w) (holds[w] && !quiet(w))
#define settling(w) (at[w] == refused || at[w] == unsure || at[w] == giving_up)

#if WORKERS == 2
#define some_worker_at_work (at_work(0) || at_work(1))
#define all_workers_quiet (quiet(0) && quiet(1))
#else
#define some_worker_at_work (at_work(0) || at_work(1) || at_work(2))
#define all_workers_quiet (quiet(0) && quiet(1) && quiet(2))
#endif

/* Idle workers are all alike, so it is enough to let the first of them claim. */
#define first_idle(w) (quiet(w) && (w < 1 || !quiet(0)) && (w < 2 || !quiet(1)))

/* ---- The design, and the mistakes --------------------------------------------------------------------- */

/* Which row a worker's write fits. */
#if defined(NO_FENCE)
#define fits(w) true
#elif defined(FENCE_BY_STATUS)
#define fits(w) (status == processing)
#elif defined(LOOK_THEN_WRITE)
#define fits(w) (status == processing && looked[w])
#elif defined(FENCE_BY_ATTEMPT)
#define fits(w) (status == processing && shown[w] == attempt)
#elif defined(FENCE_WITHOUT_LEASE)
#define fits(w) (!ended && shown[w] == token)
#else
#define fits(w) (status == processing && shown[w] == token)
#endif

#ifdef FENCE_BY_ATTEMPT
#define fence attempt
#else
#define fence token
#endif

#ifdef MARK_NOT_FENCED
#define mark_fits(w) true
#else
#define mark_fits(w) fits(w)
#endif

#ifdef NO_RAISE_ON_CLAIM
#define token_of_claim token
#else
#define token_of_claim token + 1
#endif

#ifdef NO_RAISE_ON_RECLAIM
#define token_of_reclaim token
#else
#define token_of_reclaim token + 1
#endif

#ifdef TOKEN_RESTARTS_ON_REPLAY
#define token_of_replay 0
#else
#define token_of_replay token + 1
#endif

/* When an attempt is counted, and who looks. */
#ifdef ATTEMPT_SPENT_AT_END
#define spent_at_claim 0
#define spent_at_end 1
#else
#define spent_at_claim 1
#define spent_at_end 0
#endif

#ifdef CRASHES_NOT_BUDGETED
#define over_budget false
#else
#define over_budget (attempt > BUDGET)
#endif

/* What is done about the effect: KEYED, ASKED or REVIEWED; with none of them it is just called. */
#if defined(REVIEWED) && !defined(CALL_BEFORE_MARK)
#define first_step marking
#elif defined(ASKED)
#define first_step asking
#elif defined(RECORD_THEN_CALL)
#define first_step storing
#else
#define first_step calling
#endif

#ifdef RECORD_THEN_CALL
#define after_storing calling
#define after_yes completing
#define count_after_storing(count) count
#else
#define after_storing completing
#define after_yes storing
#define count_after_storing(count) 1
#endif

#if defined(REVIEWED) && !defined(RETRY_UNKNOWN_SILENTLY)
#define unknown_is_final true
#else
#define unknown_is_final false
#endif

#ifdef KEY_CHANGES_WITH_ATTEMPT
#define key_now attempt - 1
#else
#define key_now replays
#endif

#ifdef UNKNOWN_RECORDED_AS_FAILED
#define after_silence pending
#else
#define after_silence sending
#endif

/* When the person replays a failed job. */
#if defined(PERSON_LOOKS)
#define may_replay (effects == 0)
#elif defined(PERSON_WAITS_AND_LOOKS)
#define may_replay (effects == 0 && all_workers_quiet && abandoned[0] == 0)
#else
#define may_replay true
#endif

/* ---- What the database does, one statement each -------------------------------------------------------- */

inline lease_is_over() {
    for (n : 0 .. WORKERS - 1) { holds[n] = false }
    n = 0;
    overdue = false
}

inline claim(w) {
    token = token_of_claim;
    attempt = attempt + spent_at_claim;
    status = processing;
    holds[w] = true;
    shown[w] = fence;
    key[w] = key_now;
    printf("worker %c: claims the job (token %d, attempt %d)\n", name(w), token, attempt);
    if
    :: effect == sending && unknown_is_final -> at[w] = unsure
    :: else ->
        if
        :: over_budget -> at[w] = giving_up
        :: else -> begun++; at[w] = (stored -> completing : first_step)
        fi
    fi;
    promise(WITHIN_BUDGET, begun <= BUDGET)
}

inline requeue() {
    status = queued;
    token++;
    lease_is_over()
}

inline reclaim() {
    printf("database: the lease is over, the job is queued again\n");
    status = queued;
    token = token_of_reclaim;
    lease_is_over()
}

/* ---- What a worker writes: each changes the row that it fits, or nothing -------------------------------- */

inline mark(w, step) {
    if
    :: mark_fits(w) ->
        printf("worker %c: writes that it is sending\n", name(w));
        promise(NO_STALE_WRITE, holds[w]);
        effect = sending;
        at[w] = step
    :: else -> be_fenced(w)
    fi
}

inline store(w, step) {
    if
    :: fits(w) ->
        printf("worker %c: stores the stage\n", name(w));
        promise(NO_STALE_WRITE, holds[w]);
        stored = true;
        effect = sent;
        attempt = count_after_storing(attempt);
        begun = count_after_storing(begun);
        at[w] = step
    :: else -> be_fenced(w)
    fi
}

inline complete(w) {
    if
    :: fits(w) ->
        printf("worker %c: completes the job\n", name(w));
        promise(NO_STALE_WRITE, holds[w]);
        status = completed;
        completions++;
        promise(ONE_COMPLETION, completions <= 1);
        lease_is_over()
    :: else -> be_fenced(w)
    fi
}

/* Another attempt if the budget has one, else the end. */
inline settle(w, effect_now, is_final) {
    if
    :: fits(w) ->
        promise(NO_STALE_WRITE, holds[w]);
        attempt = attempt + spent_at_end;
        effect = effect_now;
        stored = stored && effect != pending;
        if
        :: is_final || attempt >= BUDGET ->
            printf("worker %c: ends the job as failed (effect: %e)\n", name(w), effect);
            status = failed;
            lease_is_over()
        :: else -> printf("worker %c: puts the job back for another attempt\n", name(w)); requeue()
        fi
    :: else -> be_fenced(w)
    fi
}

/* A shutdown is not the job's fault, so the attempt is returned. */
inline release(w) {
    if
    :: fits(w) ->
        printf("worker %c: is shut down, gives the job back with its attempt\n", name(w));
        promise(NO_STALE_WRITE, holds[w]);
        attempt = attempt - spent_at_claim;
        begun--;
        requeue()
    :: else -> be_fenced(w)
    fi
}

/* ---- Workers ------------------------------------------------------------------------------------------- */

/* A request whose sender gave up may still arrive. */
inline abandon_call(w) {
    if
    :: in_flight[w] -> abandoned[key[w]]++
    :: else
    fi;
    in_flight[w] = false;
    answer[w] = silence
}

inline become_idle(w) {
    abandon_call(w);
    at[w] = idle;
    shown[w] = 0;
    key[w] = 0;
    looked[w] = false
}

inline be_fenced(w) {
    printf("worker %c: learns that the job is not its own\n", name(w));
    become_idle(w)
}

proctype Worker(byte w) {
end:
    do
    :: d_step { first_idle(w) && status == queued -> claim(w) }
    :: d_step { at[w] == marking -> mark(w, calling) }
    :: d_step { at[w] == asking ->
        printf("worker %c: asks the provider whether it has acted (effects: %d)\n", name(w), effects);
        at[w] = (effects > 0 -> storing : calling) }
    :: d_step { at[w] == calling ->
        printf("worker %c: calls the provider\n", name(w));
        in_flight[w] = true;
        at[w] = waiting }
    :: d_step { at[w] == waiting && answer[w] == yes -> answer[w] = silence; at[w] = after_yes }
    :: d_step { at[w] == waiting && answer[w] == no -> answer[w] = silence; at[w] = refused }
    :: d_step { at[w] == storing -> store(w, after_storing) }
    :: d_step { at[w] == completing -> complete(w); become_idle(w) }

    /* The provider said no: nothing has happened. Unknown: it may have. Too many crashes: do not even run. */
    :: d_step { at[w] == refused -> settle(w, pending, false); become_idle(w) }
    :: d_step { at[w] == unsure -> settle(w, after_silence, unknown_is_final); become_idle(w) }
    :: d_step { at[w] == giving_up -> settle(w, effect, true); become_idle(w) }

    /* Faults. */
    :: d_step { !quiet(w) && faults > 0 -> faults--; printf("worker %c: crashes\n", name(w)); become_idle(w) }
    :: d_step { at[w] == waiting && faults > 0 ->
        faults--;
        printf("worker %c: gets no answer in time\n", name(w));
        abandon_call(w);
        at[w] = unsure }
#ifndef NO_SHUTDOWNS
    :: d_step { !quiet(w) && !settling(w) && faults > 0 -> faults--; release(w); become_idle(w) }
#endif

    /* The write arrives and its answer does not, so the worker writes again. */
    :: d_step { at[w] == marking && faults > 0 -> faults--; mark(w, marking) }
    :: d_step { at[w] == storing && faults > 0 -> faults--; store(w, storing) }
    :: d_step { at[w] == completing && faults > 0 -> faults--; complete(w) }

#ifdef LOOK_THEN_WRITE
    :: d_step { !quiet(w) && !looked[w] && status == processing && shown[w] == token ->
        printf("worker %c: looks, and the job is still its own\n", name(w));
        looked[w] = true }
#endif
    od
}

/* ---- The environment ------------------------------------------------------------------------------------- */

/* Leases expire, and are extended while their worker runs. If it is paused, they are not. */
proctype Leases() {
end:
    do
    :: d_step { status == processing && !overdue -> overdue = true }
#ifndef NO_RECLAIM
    :: d_step { overdue && !some_worker_at_work -> reclaim() }
#endif
#if !defined(NO_RECLAIM) && !defined(NO_PAUSES)
    :: d_step { overdue && some_worker_at_work && faults > 0 ->
        faults--;
        printf("database: the holder is paused for too long\n");
        reclaim() }
#endif
#ifdef EXTENDED_FOR_THE_DEAD
    :: d_step { overdue -> overdue = false }
#else
    :: d_step { overdue && some_worker_at_work -> overdue = false }
#endif
    od
}

inline act_on(k) {
    if
#ifdef KEYED
    :: remembered[k] -> printf("provider: knows the key, repeats its answer\n")
#endif
    :: else ->
        effects++;
        printf("provider: acts (effects: %d)\n", effects);
#ifdef KEYED
        remembered[k] = true;
#endif
        promise(NEVER_TWICE, effects <= 1 + replays);
        promise(ONCE_FOR_ALL, effects <= 1)
    fi
}

/* The provider that a worker calls: it acts and says yes, or does nothing and says no. */
proctype Provider(byte w) {
end:
    do
    :: d_step { in_flight[w] -> act_on(key[w]); in_flight[w] = false; answer[w] = yes }
    :: d_step { in_flight[w] -> printf("provider: refuses\n"); in_flight[w] = false; answer[w] = no }
    od
}

/* Abandoned requests arrive late, or get lost. */
proctype LateRequests(byte k) {
end:
    do
    :: d_step { abandoned[k] > 0 -> abandoned[k]--; printf("provider: gets a late request\n"); act_on(k) }
    :: d_step { abandoned[k] > 0 -> abandoned[k]-- }
#ifdef PROVIDER_FORGETS
    :: d_step { remembered[k] && faults > 0 ->
        faults--;
        printf("provider: forgets the key\n");
        remembered[k] = false }
#endif
    od
}

/* A person looks at what failed, and closes it or replays it. */
proctype Person() {
end:
    do
    :: d_step { status == failed && !closed -> closed = true }
    :: d_step { status == failed && !closed && replays < REPLAYS && may_replay ->
        printf("person: brings the job back\n");
        replays++;
        status = queued;
        token = token_of_replay;
        attempt = 0;
        begun = 0;
        effect = (stored -> sent : pending) }
    od
}

/* What is checked when no process can move any more. */
proctype Rest() {
end:
    timeout;
    d_step {
        promise(NEVER_STUCK, ended);
        promise(NEVER_MISSED, status != completed || effects >= 1);
        promise(EXACTLY_ONCE, status != completed || effects == 1);
        promise(TRUE_RECORD, effect == sending || effects == (effect == sent -> 1 : 0));
        promise(KNOWN_OUTCOME, effect != sending)
    }
}

init {
    atomic {
        for (n : 0 .. WORKERS - 1) { run Worker(n); run Provider(n) }
        for (n : 0 .. KEYS - 1) { run LateRequests(n) }
        n = 0;
        run Leases();
        run Person();
        run Rest()
    }
}

#ifdef LIVENESS
ltl ends { <> [] ended }
#endif
