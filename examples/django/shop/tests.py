from django.db import IntegrityError
from django.test import TestCase

from holdfast.testing import inline
from shop.jobs import hold
from shop.models import Order


class Orders(TestCase):
    def setUp(self) -> None:
        self.ended = self.enterContext(inline(hold))

    def test_an_order_is_confirmed(self) -> None:
        placed = self.client.post("/orders", {"item": "book"}).json()

        self.assertEqual(self.client.get(f"/jobs/{placed['job']}").json(), {"status": "completed"})
        self.assertTrue(Order.objects.get().confirmed)

    def test_an_order_that_is_refused_leaves_no_job(self) -> None:
        Order.objects.create(item="book")

        with self.assertRaises(IntegrityError):
            self.client.post("/orders", {"item": "book"})

        self.assertEqual(self.ended, [])

    def test_a_job_that_is_not_there_is_not_found(self) -> None:
        self.assertEqual(self.client.get("/jobs/none").status_code, 404)
