-- Finds a route that was full, is unblocked, and whose alarm is still raised.
SELECT 1 FROM holdfast_outbox_routes WHERE route = :route AND unblocked AND at_capacity
