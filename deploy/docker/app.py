"""The application in the image: put yours in its place."""

from holdfast import Holdfast

hold = Holdfast()  # DATABASE_URL says where


@hold.job("greet")
async def greet(name: str) -> str:
    """Stand for something that takes longer."""
    return f"hello {name}"
