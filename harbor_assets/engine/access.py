"""The port that tells who asks."""

from typing import Protocol

from harbor_assets.domain.access import Caller


class Authenticator(Protocol):
    """Who a token speaks for. Usable from several threads; may block."""

    def authenticate(self, token: str) -> Caller:
        """Raises `Unauthenticated` for a token that is not accepted, `ServiceUnavailable` if that is not known now."""
        ...
