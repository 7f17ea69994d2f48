"""`python -m kedge.cli` is `kedge`."""

import sys

from kedge.cli import main

sys.exit(main())
