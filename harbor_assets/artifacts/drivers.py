"""What an object store's URL needs installed: the packages of the extra `stores`, by the URL's scheme."""

from typing import Final

DRIVERS: Final = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "az": "adlfs",
    "oss": "ossfs",
}


def driver_of(url: str) -> str | None:
    """The package that a store's URL needs; None for a folder, and for a scheme that is not known here."""
    scheme, separator, _ = url.partition("://")
    return DRIVERS.get(scheme) if separator else None
