"""What a registry knows of an image: its digest, and how its processes run.

Protocol: the OCI distribution and image specifications (https://github.com/opencontainers/distribution-spec).
"""

import base64
import hashlib
import json
import platform as machine
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from harbor_assets.domain.errors import NotFound, Refused, ServiceUnavailable
from harbor_assets.domain.plans import ImageConfig
from harbor_assets.images.reference import HUB, Reference, parse

if TYPE_CHECKING:
    import httpx

_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MAX_BYTES = 4 << 20  # the distribution specification's own limit of a manifest; configurations are far smaller
TIMEOUT_SECONDS = 30.0
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_HUB_API = "registry-1.docker.io"
_HUB_KEY = "https://index.docker.io/v1/"  # under which docker keeps the Hub's credentials


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Registries:
    """Which registries there are and how to reach them.

    `insecure` are spoken to over plain HTTP; `mirrors` are asked in place of another, and are what then runs;
    `docker_config` is a docker `config.json` with credentials.
    """

    insecure: frozenset[str] = frozenset()
    mirrors: Mapping[str, str] = field(default_factory=dict)
    docker_config: Path | None = None

    def reference(self, text: str) -> Reference:
        """The full name, its registry's mirror put in. Raises `Refused` for what is no image's name."""
        try:
            found = parse(text)
        except ValueError as error:
            raise Refused(str(error)) from None
        return found._replace(registry=self.mirrors.get(found.registry, found.registry))

    def credentials(self, registry: str) -> tuple[str, str] | None:
        """(user, password) for a registry from the docker configuration, None if there are none."""
        if self.docker_config is None:
            return None
        keys = {registry, f"https://{registry}", *((_HUB_KEY, HUB) if registry in (HUB, _HUB_API) else ())}
        try:
            known: Any = json.loads(self.docker_config.read_text(encoding="utf-8")).get("auths") or {}
            entry = next((known[key] for key in keys if key in known), {})
            if "auth" in entry:
                user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
                return user, password
            return (entry["username"], entry["password"]) if "username" in entry else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            kind = type(error).__name__  # never its text: it may quote the file
            raise Refused(f"The docker configuration {self.docker_config} cannot be read ({kind})") from None


class RegistryClient:
    """Implements the engine's `ImageRegistry`. Safe to share between threads."""

    def __init__(self, registries: Registries) -> None:
        self._registries = registries
        self._tokens: dict[tuple[str, str], str] = {}
        self._made: httpx.Client | None = None
        self._making = threading.Lock()

    def resolve(self, image: str) -> str:
        """See `ImageRegistry`."""
        reference = self._registries.reference(image)
        return f"{reference.name}@{self._digest(reference)}"

    def exists(self, ref: str) -> bool:
        """See `ImageRegistry`."""
        try:
            self.resolve(ref)
        except NotFound:
            return False
        return True

    def config(self, ref: str) -> ImageConfig:
        """See `ImageRegistry`."""
        reference = self._registries.reference(ref)
        manifest = self._document(reference, f"manifests/{reference.asked}", reference.digest)
        if entries := manifest.get("manifests"):
            chosen = _for_this_machine(entries)
            manifest = self._document(reference, f"manifests/{chosen}", chosen)
        digest = str((manifest.get("config") or {}).get("digest"))
        found = self._document(reference, f"blobs/{digest}", digest).get("config") or {}
        env = (str(item).partition("=") for item in found.get("Env") or ())
        return ImageConfig(
            user=str(found.get("User") or "") or None,
            workdir=str(found.get("WorkingDir") or "") or None,
            env={name: value for name, _, value in env},
        )

    def _digest(self, reference: Reference) -> str:
        answer = self._ask("HEAD", reference, f"manifests/{reference.asked}")
        digest = answer.headers.get("docker-content-digest", "")
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):  # the header is optional
            answer = self._ask("GET", reference, f"manifests/{reference.asked}")
            digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        if reference.digest and digest != reference.digest:
            raise ServiceUnavailable(f"The registry {reference.registry} answered another digest for {reference}")
        return digest

    def _document(self, reference: Reference, path: str, digest: str | None) -> dict[str, Any]:
        content = self._ask("GET", reference, path).content
        if digest and f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise ServiceUnavailable(f"The registry {reference.registry} answered other bytes than {digest} for {path}")
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ServiceUnavailable(f"The registry {reference.registry} did not answer JSON for {path} of {reference}")
        return found

    def _ask(self, method: str, reference: Reference, path: str) -> _Answer:
        """One request. Raises `NotFound`, `Refused` (denied), `ServiceUnavailable`."""
        import httpx

        host = reference.registry
        plain = host in self._registries.insecure
        url = f"{'http' if plain else 'https'}://{_HUB_API if host == HUB else host}/v2/{reference.repository}/{path}"
        try:
            try:
                answer = self._send(method, url, self._tokens.get((host, reference.repository)))
            except httpx.TransportError:  # a connection kept from before may have ended meanwhile
                answer = self._send(method, url, self._tokens.get((host, reference.repository)))
            if answer.status == 401:
                token = self._authorize(reference, answer.headers.get("www-authenticate", ""), plain=plain)
                if token:
                    self._tokens[host, reference.repository] = token
                    answer = self._send(method, url, token)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServiceUnavailable(f"The registry {host} cannot be asked for {reference}: {error}") from None
        match answer.status:
            case 200:
                return answer
            case 404:
                raise NotFound(f"{reference} is not there; look at its name and tag")
            case 401 | 403:
                raise Refused(f"{reference} is not shown to us ({answer.status}): it needs credentials or is not there")
            case status:
                raise ServiceUnavailable(f"The registry {host} answered {status} for {reference}; try again")

    def _send(self, method: str, url: str, token: str | None, query: Mapping[str, str] | None = None) -> _Answer:
        headers = {"Accept": ", ".join((*_MANIFESTS, *_INDEXES, "application/json", "*/*"))}
        if token:
            headers["Authorization"] = token
        pieces: list[bytes] = []
        with self._client().stream(method, url, headers=headers, params=query) as answer:
            for piece in answer.iter_bytes():
                pieces.append(piece)
                if sum(map(len, pieces)) > MAX_BYTES:
                    raise ServiceUnavailable(f"{answer.url.host} answered over {MAX_BYTES} bytes for a description")
        return _Answer(answer.status_code, answer.headers, b"".join(pieces))

    def _client(self) -> "httpx.Client":
        import httpx

        with self._making:
            if self._made is None:
                # Redirects: blobs lie on other hosts; httpx drops the authorization on the way there.
                self._made = httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=True)
            return self._made

    def _authorize(self, reference: Reference, challenge: str, *, plain: bool) -> str | None:
        """The `Authorization` for a challenge (https://distribution.github.io/distribution/spec/auth/token/)."""
        known = self._registries.credentials(reference.registry)
        basic = "Basic " + base64.b64encode(":".join(known).encode()).decode() if known else None
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            return basic
        values = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = values.get("realm", "")
        if scheme.lower() != "bearer" or not (urlsplit(realm).scheme == "https" or (plain and realm)):
            return None  # credentials never travel in plain words to where only the challenge says
        query = {"service": values.get("service", ""), "scope": f"repository:{reference.repository}:pull"}
        try:
            found = json.loads(self._send("GET", realm, basic, query).content)
            return f"Bearer {found.get('token') or found['access_token']}"
        except (ValueError, KeyError, AttributeError):
            return None


def _for_this_machine(entries: Iterable[Any]) -> str:
    """The digest of the entry for Linux on this machine's architecture, else of the first that is for Linux."""
    wanted = _ARCHITECTURES.get(machine.machine(), machine.machine())
    linux = [entry for entry in entries if (entry.get("platform") or {}).get("os") == "linux"]
    fitting = [entry for entry in linux if entry["platform"].get("architecture") == wanted]
    found = next(iter(fitting or linux), None)
    if found is None:
        raise NotFound("The image has nothing for Linux")
    return str(found["digest"])
