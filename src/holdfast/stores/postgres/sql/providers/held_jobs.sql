SELECT held_by, count(*) AS jobs FROM holdfast.jobs WHERE held_by IS NOT NULL GROUP BY held_by
