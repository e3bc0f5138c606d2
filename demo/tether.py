"""Runs a module as `python -m` does, in a process that ends with its parent, even after `kill -9` of the parent."""

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
    with contextlib.suppress(
        AttributeError, OSError
    ):  # only Linux has it; elsewhere the parent ends its children
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The signal is not sent for a parent that ended before the call above.
    if os.getppid() != parent:
        sys.exit("the parent process has ended already")
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
