INSERT INTO holdfast_tickets (id, kind, raised_at, facts, due_at)
VALUES ('alarm:' || :kind || ':' || :now, :kind, :now, :facts, :now)
