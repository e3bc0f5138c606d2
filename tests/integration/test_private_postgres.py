"""The servers that other tests stand on do what those tests believe of them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.servers import is_postgres

if TYPE_CHECKING:
    from tests.servers import PostgresServer, PrivatePostgres


async def make_table(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE kept (word text)")
    await connection.close()


async def words(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return [row["word"] for row in await connection.fetch("SELECT word FROM kept ORDER BY word")]
    finally:
        await connection.close()


async def write(dsn: str, word: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("INSERT INTO kept VALUES ($1)", word)
    await connection.close()


async def test_each_database_is_a_fresh_copy_of_the_prepared_one(postgres_server: PostgresServer) -> None:
    first = postgres_server.create_database(make_table)
    second = postgres_server.create_database(make_table)

    await write(first, "mine")

    assert await words(first) == ["mine"]
    assert await words(second) == []


def test_the_preparation_runs_once(postgres_server: PostgresServer) -> None:
    prepared: list[str] = []

    for _ in range(3):
        postgres_server.create_database(prepared.append)

    assert len(prepared) == 1


def test_a_database_that_was_not_created_here_is_not_dropped(postgres_server: PostgresServer) -> None:
    with pytest.raises(ValueError, match="not created here"):
        postgres_server.drop_database(postgres_server.dsn("postgres"))


async def test_committed_rows_survive_every_way_to_end_the_server(
    restartable_postgres: PrivatePostgres,
) -> None:
    server = restartable_postgres
    dsn = server.create_database(make_table)

    await write(dsn, "before restart")
    server.restart()
    await write(dsn, "before immediate")
    server.restart("immediate")
    await write(dsn, "before kill")
    server.kill()
    assert not server.running
    server.start()

    assert await words(dsn) == ["before immediate", "before kill", "before restart"]


async def test_a_killed_server_takes_its_connections_along(restartable_postgres: PrivatePostgres) -> None:
    connection = await asyncpg.connect(restartable_postgres.dsn())

    restartable_postgres.kill()

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.fetch("SELECT 1")
    connection.terminate()


async def test_the_unix_socket_leads_to_the_same_server(restartable_postgres: PrivatePostgres) -> None:
    dsn = restartable_postgres.create_database(make_table)
    name = dsn.rpartition("/")[2]

    await write(restartable_postgres.socket_dsn(name), "through the socket")

    assert await words(dsn) == ["through the socket"]


def test_another_program_of_that_name_is_not_taken_for_postgresql(tmp_path: Path) -> None:
    for name in ("postgres", "initdb", "pg_ctl"):
        (tmp_path / name).write_text("#!/bin/sh\necho another postgres 15\n")
        (tmp_path / name).chmod(0o755)

    assert not is_postgres(tmp_path)


@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="waiting for a process that is not our child needs Linux"
)
@pytest.mark.usefixtures("postgres_server")
def test_a_test_run_that_is_killed_leaves_no_server_behind() -> None:
    script = "from tests.servers import PrivatePostgres as P; p = P(); p.start(); print(p.pid, flush=True); input()"
    run = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdout is not None
    server = os.pidfd_open(int(run.stdout.readline()))

    run.kill()
    run.communicate()

    assert _ended(server)


def _ended(pidfd: int) -> bool:
    try:
        return bool(select.select([pidfd], [], [], 30)[0])
    finally:
        os.close(pidfd)
