SELECT token, version, state FROM holdfast_plans WHERE token = :token
