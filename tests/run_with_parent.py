"""Runs a module as `python -m` does, and ends with its parent process, even if that was killed."""

import contextlib
import ctypes
import faulthandler
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have this process killed as soon as its parent has ended."""
    parent = os.getppid()
    with contextlib.suppress(AttributeError, OSError):  # only Linux has it; elsewhere the tests clean up
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent process has ended already")


def main() -> None:
    """Run the module that the first argument names, with the other arguments."""
    end_with_parent()
    faulthandler.enable()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
