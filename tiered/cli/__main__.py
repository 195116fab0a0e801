"""`python -m tiered.cli`: the same as the script `tiered`, for where that is not on PATH."""

import sys

from tiered.cli.main import main

sys.exit(main())
