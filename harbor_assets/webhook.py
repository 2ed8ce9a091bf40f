"""Notices to a webhook: one POST of JSON each. The address is a secret, and is in no error and no log line."""

import json
import logging

import httpx

from harbor_assets.domain.notices import Format, Notice
from harbor_assets.engine.notice_ports import Undelivered

for library in ("httpx", "httpcore"):  # they log the addresses that they call
    logging.getLogger(library).setLevel(logging.WARNING)


class Webhook:
    """A messenger over HTTP. `timeout`: seconds for all of one call."""

    def __init__(self, url: str, form: Format, *, timeout: float) -> None:
        self._url, self._timeout = url, timeout
        self._form: Format = form

    def send(self, notice: Notice) -> None:
        """See `Messenger`. Redirects are not followed: the address was given to us, another was not."""
        headers = {
            "Content-Type": "application/json",
            "X-Harbor-Assets-Event": notice.event,
            "Idempotency-Key": notice.id,
        }
        body = json.dumps(notice.body(self._form)).encode()
        try:
            with httpx.Client(timeout=self._timeout, follow_redirects=False) as client:
                status = client.post(self._url, content=body, headers=headers).status_code
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise Undelivered(f"no answer from the webhook ({type(error).__name__})") from None
        if not 200 <= status < 300:
            raise Undelivered(f"the webhook answered {status}")
