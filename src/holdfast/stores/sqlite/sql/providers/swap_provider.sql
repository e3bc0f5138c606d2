-- Replaces a provider's state if its version is still the one that was read.
UPDATE holdfast_providers
   SET version = version + 1, state = :state, updated_at = :now
 WHERE name = :name
   AND version = :version
