"""The configuration of the Django application."""

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from holdfast.contrib.django.django_holdfast import close_before_database_changes
from holdfast.contrib.django.schema import checkpoint_wal


class HoldfastConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Imports the module `jobs` of every application, so that a worker and a test know all jobs."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Import the jobs, after all models are loaded."""
        connection_created.connect(close_before_database_changes, dispatch_uid=self.name)
        post_migrate.connect(checkpoint_wal, dispatch_uid=self.name)
        autodiscover_modules("jobs")
