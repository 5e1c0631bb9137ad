"""`python -m rankproof`: the command without its script."""

import sys

from rankproof.command import main

if __name__ == "__main__":
    sys.exit(main())
