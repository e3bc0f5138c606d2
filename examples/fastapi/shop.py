"""A shop: an order and the job that confirms it are stored in one transaction."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import Holdfast
from holdfast.errors import JobNotFound

engine = create_async_engine("sqlite+aiosqlite:///shop.db")
hold = Holdfast("sqlite:///shop.db")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    item: Mapped[str] = mapped_column(primary_key=True)
    confirmed: Mapped[bool] = mapped_column(default=False)


@hold.job("confirm")
async def confirm(item: str) -> str:
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(update(Order).where(Order.item == item).values(confirmed=True))
    return f"confirmed {item}"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with hold, hold.worker(slots=10):  # or only `hold`, and `holdfast worker shop:hold` beside it
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def transaction() -> AsyncIterator[AsyncSession]:
    """Give a session whose transaction is committed before the answer is sent, and rolled back on an error."""
    async with AsyncSession(engine) as session, session.begin():
        yield session


Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]


@app.post("/orders/{item}", status_code=202)
async def place(item: str, session: Transaction) -> dict[str, str]:
    if await session.get(Order, item) is not None:
        raise HTTPException(409, "there is such an order")
    session.add(Order(item=item))
    await session.flush()
    job = await confirm.options(within=session).submit(item)
    return {"job": job.id}


@app.get("/jobs/{job_id}")
async def show(job_id: str) -> dict[str, str]:
    try:
        return {"status": (await hold.read(job_id)).status}
    except JobNotFound as error:
        raise HTTPException(404) from error
