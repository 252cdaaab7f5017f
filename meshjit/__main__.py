"""`python -m meshjit plan …`: the command, where its folder is not on the path."""

from meshjit.cli import main

raise SystemExit(main())
