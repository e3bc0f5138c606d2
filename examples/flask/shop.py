"""A shop: an order and the job that confirms it are stored in one transaction."""

from flask import Flask, abort
from sqlalchemy import create_engine, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import Holdfast
from holdfast.errors import JobNotFound

engine = create_engine("sqlite:///shop.db")
hold = Holdfast("sqlite:///shop.db")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    item: Mapped[str] = mapped_column(primary_key=True)
    confirmed: Mapped[bool] = mapped_column(default=False)


@hold.job("confirm")
def confirm(item: str) -> str:
    with Session(engine) as session, session.begin():
        session.execute(update(Order).where(Order.item == item).values(confirmed=True))
    return f"confirmed {item}"


def create_app() -> Flask:
    Base.metadata.create_all(engine)
    hold.open_sync()  # a new file is set up here
    app = Flask(__name__)

    @app.post("/orders/<item>")
    def place(item: str) -> tuple[dict[str, str], int]:
        with Session(engine) as session, session.begin():
            if session.get(Order, item) is not None:
                abort(409)
            session.add(Order(item=item))
            session.flush()
            job = confirm.options(within=session).submit_sync(item)
        return {"job": job.id}, 202

    @app.get("/jobs/<job_id>")
    def show(job_id: str) -> dict[str, str]:
        try:
            return {"status": hold.read_sync(job_id).status}
        except JobNotFound:
            abort(404)

    return app
