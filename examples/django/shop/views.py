from django.db import connection, transaction
from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from holdfast.errors import JobNotFound
from shop.jobs import confirm, hold
from shop.models import Order


@csrf_exempt
@require_POST
def place(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        job = confirm.options(within=connection).submit_sync(order.pk)
    return JsonResponse({"job": job.id}, status=202)


def show(request: HttpRequest, job_id: str) -> JsonResponse:
    try:
        return JsonResponse({"status": hold.read_sync(job_id).status})
    except JobNotFound as error:
        raise Http404 from error
