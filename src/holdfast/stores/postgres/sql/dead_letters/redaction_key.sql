SELECT redaction_key FROM holdfast.meta
