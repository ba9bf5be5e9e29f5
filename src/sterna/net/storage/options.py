"""How much a log may keep, and what it does about damage."""

import msgspec

MIB = 1 << 20


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a log's parts, and when it asks for a snapshot."""

    segment_bytes: int = 64 * MIB
    """A segment that has reached this size is followed by a new one."""
    fill_bytes: int = 1 * MIB
    """Segments are filled with zeros so far ahead: a sync then has no file size to write."""
    snapshot_bytes: int = 64 * MIB
    """A snapshot is due when more than this was written since the last one."""
    snapshot_records: int = 1_000_000
    """A snapshot is due when there are more records than this since the last one."""
    bytes_max: int | None = None
    """What segments and snapshots may take together. There are at most three snapshots at a time,
    and the log of two intervals between snapshots."""
    salvage: bool = False
    """Whether to go on with what lies before a damage. The rest is set aside as `*.damaged`."""

    def __post_init__(self) -> None:
        for name in ("segment_bytes", "fill_bytes", "snapshot_bytes", "snapshot_records"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.bytes_max is not None and self.bytes_max < 64 * 1024:
            raise ValueError("bytes_max must be at least 65536, or None for no limit")

    def within(self, bytes_: int) -> int:
        """A size, or less if the limit of the whole leaves too little room for it."""
        return bytes_ if self.bytes_max is None else min(bytes_, self.bytes_max // 8)
