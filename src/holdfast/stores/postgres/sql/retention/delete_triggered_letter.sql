-- A trigger has just written a letter, as for any job that fails; the archived one takes its place, and no second
-- notification is sent. A ticket with facts is older: its letter was deleted before the notification.
WITH steps AS (
    DELETE FROM holdfast.letter_steps WHERE job_id = $1::uuid
), tickets AS (
    DELETE FROM holdfast.tickets WHERE job_id = $1::uuid AND facts = '{}'
)
DELETE FROM holdfast.dead_letters WHERE job_id = $1::uuid
