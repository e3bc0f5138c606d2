"""A model of leases, fencing and effects, small enough to visit every state it can reach."""
