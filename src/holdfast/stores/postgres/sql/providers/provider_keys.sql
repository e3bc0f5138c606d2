SELECT key, version, state FROM holdfast.provider_keys WHERE name = $1 AND key = ANY ($2::text[])
