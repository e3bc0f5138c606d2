"""Holdfast at home in Django: jobs in Django's database, `manage.py holdfast`, tables made by `manage.py migrate`.

Add `"holdfast.contrib.django"` to `INSTALLED_APPS`. Then the module `jobs` of each application is imported at
the start, and may declare jobs on a `DjangoHoldfast()`.
"""

from holdfast.contrib.django.database import database_url
from holdfast.contrib.django.face import DjangoHoldfast

__all__ = ["DjangoHoldfast", "database_url"]
