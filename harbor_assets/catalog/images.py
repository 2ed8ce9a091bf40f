"""What is known of images (`ImageCatalog`)."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection, delete, insert, or_, select, update

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.records import chunks
from harbor_assets.catalog.schema import IMAGE_CLAIMS, IMAGES, TASK_IMAGES
from harbor_assets.domain.errors import Broken
from harbor_assets.domain.images import ImageRecord, TaskImage


class SqlImages:
    """Images in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_task_images(self, files_hash: str, images: Sequence[TaskImage]) -> None:
        """See `ImageCatalog`."""
        rows = [{"files_hash": files_hash, "role": image.role, "body": image.model_dump_json()} for image in images]

        def work(connection: Connection) -> None:
            connection.execute(delete(TASK_IMAGES).where(TASK_IMAGES.c.files_hash == files_hash))
            if rows:
                connection.execute(insert(TASK_IMAGES), rows)

        self._database.write(work)

    def task_images(self, files_hashes: Sequence[str]) -> Mapping[str, Sequence[TaskImage]]:
        """See `ImageCatalog`."""
        found: dict[str, list[TaskImage]] = {}
        with self._database.read() as connection:
            for chunk in chunks(list(dict.fromkeys(files_hashes))):
                query = select(TASK_IMAGES).where(TASK_IMAGES.c.files_hash.in_(chunk)).order_by(TASK_IMAGES.c.role)
                for row in connection.execute(query):
                    found.setdefault(row.files_hash, []).append(_read(TaskImage, row.body))
        return found

    def put_image(self, record: ImageRecord) -> None:
        """See `ImageCatalog`."""
        values = {"state": record.state, "seen_at": record.seen_at, "body": record.model_dump_json()}

        def work(connection: Connection) -> None:
            done = connection.execute(update(IMAGES).where(IMAGES.c.key == record.key).values(**values))
            if done.rowcount == 0:
                connection.execute(insert(IMAGES).values(key=record.key, **values))

        self._database.write(work)

    def images(self, keys: Sequence[str]) -> Mapping[str, ImageRecord]:
        """See `ImageCatalog`."""
        found: dict[str, ImageRecord] = {}
        with self._database.read() as connection:
            for chunk in chunks(list(dict.fromkeys(keys))):
                for row in connection.execute(select(IMAGES).where(IMAGES.c.key.in_(chunk))):
                    found[row.key] = _read(ImageRecord, row.body)
        return found

    def ready_images(self, after: datetime | None = None, *, limit: int = 1000) -> Sequence[ImageRecord]:
        """See `ImageCatalog`."""
        query = select(IMAGES.c.body).where(IMAGES.c.state == "ready").order_by(IMAGES.c.seen_at, IMAGES.c.key)
        if after is not None:
            query = query.where(IMAGES.c.seen_at > after)
        with self._database.read() as connection:
            return [_read(ImageRecord, body) for body in connection.scalars(query.limit(limit))]

    def claim_image(self, key: str, holder: str, *, now: datetime, until: datetime) -> bool:
        """See `ImageCatalog`."""
        claims = IMAGE_CLAIMS

        def work(connection: Connection) -> bool:
            free = or_(claims.c.holder == holder, claims.c.until <= now)
            taken = update(claims).where(claims.c.key == key, free).values(holder=holder, until=until)
            if connection.execute(taken).rowcount:
                return True
            if connection.scalar(select(claims.c.key).where(claims.c.key == key)):
                return False
            # Where another comes first, the transaction is done again and finds it.
            connection.execute(insert(claims).values(key=key, holder=holder, until=until))
            return True

        return self._database.write(work)

    def release_image(self, key: str, holder: str) -> None:
        """See `ImageCatalog`."""
        mine = delete(IMAGE_CLAIMS).where(IMAGE_CLAIMS.c.key == key, IMAGE_CLAIMS.c.holder == holder)
        self._database.write(lambda connection: connection.execute(mine))

    def claimed_images(self, keys: Sequence[str], *, now: datetime) -> frozenset[str]:
        """See `ImageCatalog`."""
        found: set[str] = set()
        with self._database.read() as connection:
            for chunk in chunks(list(dict.fromkeys(keys))):
                live = select(IMAGE_CLAIMS.c.key).where(IMAGE_CLAIMS.c.key.in_(chunk), IMAGE_CLAIMS.c.until > now)
                found.update(connection.scalars(live))
        return frozenset(found)


def _read[M: BaseModel](kind: type[M], text: str) -> M:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise Broken(f"an image in the catalog cannot be read: {error.errors()[0]['msg']}") from error
