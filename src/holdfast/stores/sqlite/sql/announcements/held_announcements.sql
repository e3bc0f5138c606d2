-- Returns those of these announcements that no other process has taken since, or published. [[sequence, tries], ...]
SELECT json_group_array(taken.sequence)
  FROM json_each(:batch) AS want
 CROSS JOIN holdfast_announcements AS taken ON taken.sequence = want.value ->> 0
 WHERE taken.tries = want.value ->> 1
