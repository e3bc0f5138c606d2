"""The application in the image: replace it by your own."""

from holdfast import Holdfast

hold = Holdfast()  # DATABASE_URL says where


@hold.job("greet")
async def greet(name: str) -> str:
    """Represent a job that takes longer."""
    return f"hello {name}"
