"""Subscriptions that change while a stream is matched: a folder of versions, one of them current.

The folder has to be where all workers can read it, like the checkpoints of the stream. `CURRENT`
names the version in force. Its length never changes, and it is replaced in one step, so that every
reader finds one version or the other. Spark reads it once for each micro-batch.
"""

import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name.
from pyspark.sql.types import DataType, StructType

from sterna.pipeline.errors import PipelineError
from sterna.pipeline.matching.cache import compiled_cache
from sterna.pipeline.matching.subscriptions import SubscriptionShare, SubscriptionTable

CURRENT = "CURRENT"
ABOUT = "about.json"
KEPT = 3
"""How many versions are kept, the current one included: running micro-batches need theirs."""

_NAME_LENGTH, _SHARES_DIGITS = 32, 6
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class About:
    """The facts about a version."""

    version: str
    shares: int
    subscriptions: int
    index_bytes: int
    id_type_json: str

    @property
    def id_type(self) -> DataType:
        return StructType.fromJson(json.loads(self.id_type_json)).fields[0].dataType


class Versions:
    """A folder of compiled subscriptions.

    All events of a micro-batch are matched with one version: the one that is current when the
    micro-batch is executed. A micro-batch that is repeated after a failure takes the version that
    is current then. `publish` changes what is in force from the next micro-batch on.
    """

    def __init__(self, folder: Path | str, *, cache: Path | str | None = None) -> None:
        """Use a folder of versions; what is published is compiled with the cache in `cache`."""
        self.folder = Path(folder).absolute()
        self._cache = compiled_cache(cache)

    def publish(self, subscriptions: DataFrame, *, shares: int = 1) -> About:
        """Compile a table of subscriptions (`id`, `filter`) and make it the current version.

        If there is an error, nothing changes. `shares` is for the layout SUBSCRIPTIONS: so many
        workers have a part each. The type of `id` has to stay the same.
        """
        spark = subscriptions.sparkSession
        table = SubscriptionTable.read(subscriptions)

        def compile_() -> list[SubscriptionShare]:
            count = max(1, min(shares, len(table.ids)))
            return table.parsed(spark).compiled(count, spark)

        request = table.digest, shares
        made = compile_() if self._cache is None else self._cache.get(request, compile_)
        name = hashlib.sha256("".join(s.digest for s in made).encode()).hexdigest()[:_NAME_LENGTH]
        about = About(
            version=name,
            shares=len(made),
            subscriptions=len(table.ids),
            index_bytes=sum(share.index_bytes for share in made),
            id_type_json=StructType().add("id", table.id_type).json(),
        )
        if (self.folder / CURRENT).exists() and self.about().id_type != about.id_type:
            raise PipelineError(
                f"ids are of the type {about.id_type.simpleString()}, but the current version has "
                f"{self.about().id_type.simpleString()}: cast them"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(about, made)
        self._point_to(about)
        self._forget_old(about)
        return about

    def about(self) -> About:
        """The facts about the current version."""
        try:
            name = (self.folder / CURRENT).read_text(encoding="ascii").split()[0]
            return About(**json.loads((self.folder / name / ABOUT).read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise PipelineError(
                f"{self.folder} has no subscriptions yet: call Versions(folder).publish() first"
            ) from None

    def current(self, spark: SparkSession) -> DataFrame:
        """One row with `version` and `shares`, read whenever it is executed."""
        text = spark.read.schema("value string").text(str(self.folder / CURRENT))
        words = F.split("value", " ")
        return text.select(words[0].alias("version"), words[1].cast("int").alias("shares"))

    def shelf(self) -> "Folder":
        return Folder(str(self.folder))

    def _write(self, about: About, shares: list[SubscriptionShare]) -> None:
        final = self.folder / about.version
        if final.exists():  # The same subscriptions were published before.
            final.touch()
            return
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        try:
            for place, share in enumerate(shares):
                (new / str(place)).write_bytes(bytes.fromhex(share.digest) + share.data)
            (new / ABOUT).write_text(json.dumps(asdict(about)), encoding="utf-8")
            new.chmod(0o755)
            new.rename(final)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def _point_to(self, about: About) -> None:
        line = f"{about.version} {about.shares:0{_SHARES_DIGITS}d}\n"
        new = self.folder / f".{CURRENT}-{about.version}"
        new.write_text(line, encoding="ascii")
        new.replace(self.folder / CURRENT)

    def _forget_old(self, about: About) -> None:
        others = [
            each
            for each in self.folder.iterdir()
            if len(each.name) == _NAME_LENGTH and each.name != about.version
        ]
        others.sort(key=lambda each: each.stat().st_mtime_ns, reverse=True)
        for old in others[KEPT - 1 :]:
            shutil.rmtree(old, ignore_errors=True)


@dataclass(frozen=True)
class Folder:
    """Where workers find the shares of versions."""

    path: str

    def shares(self, version: str) -> int:
        about = json.loads((Path(self.path) / version / ABOUT).read_text(encoding="utf-8"))
        return int(about["shares"])

    def name(self, version: str, share: int) -> str:
        return f"{version}/{share}"

    def size(self, version: str, share: int) -> int:
        return (Path(self.path) / version / str(share)).stat().st_size

    def take(self, version: str, share: int) -> bytes:
        """A share, checked to be intact."""
        path = Path(self.path) / version / str(share)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise PipelineError(
                f"{path} is not there any more: a micro-batch took longer than {KEPT - 1} new "
                "versions; publish less often"
            ) from None
        digest, data = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != digest:
            raise PipelineError(f"{path} is damaged: publish the subscriptions again")
        return data
