"""The shop: orders, the views that take them, and the jobs that confirm them."""
