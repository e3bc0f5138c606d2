from django.urls import path
from shop import views

urlpatterns = [
    path("orders", views.place),
    path("jobs/<job_id>", views.show),
]
