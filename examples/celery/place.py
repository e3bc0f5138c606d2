"""Place an order: `python place.py 17`. It calls the task as ever, whether or not the task is durable."""

import sys

from shop import confirm

confirm.delay(int(sys.argv[1]))
