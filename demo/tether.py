"""Runs a module as `python -m` does, in a process that ends with the one that started it, even by `kill -9`."""

import contextlib
import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the module that the second argument names, with those after it; the first is the parent's id."""
    parent = int(sys.argv[1])
    with contextlib.suppress(AttributeError, OSError):  # Linux alone has it; elsewhere our parent ends us
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A parent that was gone before the tie was made would never be missed.
    if os.getppid() != parent:
        sys.exit("whoever started this has gone already")
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
