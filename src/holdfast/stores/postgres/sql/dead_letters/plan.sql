SELECT token, version, state FROM holdfast.plans WHERE token = $1
