from holdfast.contrib.django import DjangoHoldfast
from shop.models import Order

hold = DjangoHoldfast()


@hold.job("confirm")
def confirm(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    order.confirmed = True
    order.save()
    return f"confirmed {order.item}"
