from meshjit.cli import main

raise SystemExit(main())
