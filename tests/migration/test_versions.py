"""Code and schema that do not fit each other say so in one line, with what to run."""

import pytest

from holdfast.core.errors import SchemaError, SchemaMissing, SchemaTooNew, SchemaTooOld
from holdfast.ports import SchemaState
from holdfast.stores.schema_version import MIN_COMPATIBLE, ensure_fit
from tests.migration.conftest import PostgresTarget, Release, Target
from tests.migration.test_migrations import ADDITION, apply, with_next


async def opened(target: Target) -> None:
    store = target.new_store()
    try:
        await store.open()
    finally:
        await store.close()


async def newer(target: Target, *, min_compatible: int) -> None:
    """Leave the schema as a later release would: with a version that this code does not know."""
    await apply(target)
    await target.execute(f"UPDATE holdfast.meta SET schema_version = 99, min_compatible = {min_compatible}")


async def test_a_database_without_a_schema_is_recognized(target: Target) -> None:
    if isinstance(target, PostgresTarget):
        with pytest.raises(SchemaMissing) as caught:
            await opened(target)
        assert_one_clear_line(caught.value, "no Holdfast schema", "holdfast schema apply")
    else:
        await opened(target)  # an embedded store applies its schema when it is opened


async def test_a_schema_of_an_earlier_release_is_recognized(target: Target, release: Release) -> None:
    await apply(target)
    release(with_next(target, *ADDITION))

    with pytest.raises(SchemaTooOld) as caught:
        await opened(target)

    found = target.scripts[-1][0]
    assert_one_clear_line(caught.value, f"version {found}", f"needs {found + 1}", "holdfast schema apply")


async def test_a_schema_that_no_longer_serves_this_code_is_recognized(target: Target) -> None:
    await newer(target, min_compatible=99)

    with pytest.raises(SchemaTooNew) as caught:
        await opened(target)

    latest = target.scripts[-1][0]
    assert_one_clear_line(caught.value, "version 99", f"this code is version {latest}", "upgrade holdfast")


async def test_a_newer_schema_that_still_serves_this_code_is_used(target: Target) -> None:
    await newer(target, min_compatible=MIN_COMPATIBLE)

    await opened(target)


async def test_older_code_leaves_a_newer_schema_alone(target: Target) -> None:
    await newer(target, min_compatible=99)
    before = await target.catalog()

    state = await apply(target)

    assert (state.found, state.min_compatible, state.current) == (99, 99, True)
    assert await apply(target) == state
    assert await target.catalog() == before


def test_each_misfit_is_one_line() -> None:
    misfits = [SchemaState(0, 2, 0), SchemaState(1, 2, 1), SchemaState(9, 2, 3)]

    for misfit in misfits:
        with pytest.raises(SchemaError) as caught:
            ensure_fit(misfit)
        assert_one_clear_line(caught.value)


def assert_one_clear_line(error: Exception, *words: str) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert [word for word in words if word not in text] == []
