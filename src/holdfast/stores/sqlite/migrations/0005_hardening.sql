-- What hardening under load needs. Each part says what it is for.

-- Limits by key: what is given out of the limits of one key is a row of its own, which expires. In the provider's row
-- all keys would be read and written with each of them. Workers of an earlier version go on to keep theirs there.
CREATE TABLE holdfast_provider_keys (
    name        TEXT NOT NULL,
    key         TEXT NOT NULL,
    version     INTEGER NOT NULL,
    state       TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (name, key)
) WITHOUT ROWID;

CREATE INDEX holdfast_provider_keys_expiring ON holdfast_provider_keys (expires_at);
