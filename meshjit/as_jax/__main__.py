"""`python -m meshjit.as_jax script.py arguments`, or `-m module arguments`: run as if jax was meshjit."""

import os
import runpy
import sys

USAGE = "usage: python -m meshjit.as_jax (script.py | -m module) [arguments]"


def main() -> None:
    arguments = sys.argv[1:]
    module = bool(arguments) and arguments[0] == "-m"
    if len(arguments) <= module:
        sys.exit(USAGE)
    sys.argv = arguments[module:]
    if module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


main()
