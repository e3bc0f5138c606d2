"""Jobs: their states, stages, transitions and history."""
