SELECT token, version, state FROM holdfast.plans WHERE running ORDER BY token
