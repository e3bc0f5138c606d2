"""A process can tell whether another one of the same machine has ended, and says nothing about other machines."""

import subprocess
import sys

from holdfast.wiring.process_identity import fleet_worker_name, is_dead

NAME = "from holdfast.wiring.process_identity import fleet_worker_name; print(fleet_worker_name(), flush=True); input()"


def test_a_process_that_runs_is_not_dead() -> None:
    assert not is_dead(fleet_worker_name())


def test_a_process_is_dead_once_it_has_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", NAME], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        running = is_dead(name)
        process.kill()

    assert not running
    assert is_dead(name)


def test_a_process_whose_id_belongs_to_another_one_by_now_is_dead() -> None:
    host, pid, identity = fleet_worker_name().split(":")
    machine, _, rest = identity.split(".")

    assert is_dead(f"{host}:{pid}:{machine}.1.{rest}")


def test_nothing_is_known_about_a_process_of_another_machine_container_or_kind() -> None:
    host, _, identity = fleet_worker_name().split(":")
    machine, started, rest = identity.split(".")

    assert not is_dead(f"elsewhere:999999:{identity}")
    assert not is_dead(f"{host}:999999:{machine}0.{started}.{rest}")
    assert not is_dead(f"{host}:999999:0123456789ab")
    assert not is_dead("a worker")
    assert not is_dead("")
