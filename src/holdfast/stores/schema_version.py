"""Whether this code and the database's schema fit each other."""

from holdfast.core.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from holdfast.ports import SchemaState

MIN_COMPATIBLE = 1
"""The oldest code version that can work on the schema which this code applies."""


def ensure_fit(state: SchemaState) -> None:
    """Refuse a schema that this code cannot work on, and say what to run."""
    if state.found == 0:
        raise SchemaMissing(
            "the database has no Holdfast schema; run `holdfast schema apply`, or call apply_schema()"
        )
    if state.found < state.expected:
        raise SchemaTooOld(
            f"the schema is version {state.found}, this code needs {state.expected}; run `holdfast schema apply`"
        )
    if state.min_compatible > state.expected:
        raise SchemaTooNew(
            f"the schema is version {state.found} and serves code from version {state.min_compatible} on, "
            f"this code is version {state.expected}; upgrade holdfast"
        )
