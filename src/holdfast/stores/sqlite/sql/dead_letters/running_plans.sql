SELECT token, version, state FROM holdfast_plans INDEXED BY holdfast_plans_running WHERE running = 1 ORDER BY token
