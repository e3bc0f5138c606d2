-- All at once, before anything else, and in the order in which workers take them.
LOCK TABLE holdfast.jobs, holdfast.finished, holdfast.stages IN ACCESS EXCLUSIVE MODE;

-- Limits by key: what is given out of the limits of one key is a row of its own, which expires. In the provider's row
-- all keys would be read and written with each of them. Workers of an earlier version go on to keep theirs there.
CREATE TABLE holdfast.provider_keys (
    name        text NOT NULL,
    key         text NOT NULL,
    version     bigint NOT NULL,
    state       text NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (name, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE INDEX provider_keys_expiring ON holdfast.provider_keys (expires_at);
