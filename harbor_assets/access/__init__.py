"""Who asks: tokens of an access file, and signed tokens of the issuers it names."""

from harbor_assets.access.file import AccessFileAuthenticator, add_token, read_access

__all__ = ["AccessFileAuthenticator", "add_token", "read_access"]
