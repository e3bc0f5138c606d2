"""The application as Django knows it."""

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from holdfast.contrib.django.face import let_go
from holdfast.contrib.django.schema import write_out


class HoldfastConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Imports the module `jobs` of every application, so that a worker and a test know all jobs."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Find the jobs, when all models are there."""
        connection_created.connect(let_go, dispatch_uid=self.name)
        post_migrate.connect(write_out, dispatch_uid=self.name)
        autodiscover_modules("jobs")
