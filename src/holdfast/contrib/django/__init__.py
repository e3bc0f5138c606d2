"""Holdfast for Django: jobs in Django's database, `manage.py holdfast`, tables created by `manage.py migrate`.

Add `"holdfast.contrib.django"` to `INSTALLED_APPS`. Then Django imports the module `jobs` of each application at
the start; it may declare jobs on a `DjangoHoldfast()`.
"""

from holdfast.contrib.django.database import database_url
from holdfast.contrib.django.django_holdfast import DjangoHoldfast

__all__ = ["DjangoHoldfast", "database_url"]
