"""What a worker process loads: `holdfast worker demo.worker:hold`."""

import os

from demo.app import open_shop

hold = open_shop(os.environ["DATABASE_URL"], os.environ["PROVIDER_URL"]).hold
