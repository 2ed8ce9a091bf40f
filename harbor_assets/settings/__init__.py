"""Settings: every variable is named `HARBOR_ASSETS_*`; an empty one counts as unset."""

from harbor_assets.settings.home import LAYOUT
from harbor_assets.settings.masking import mask_url
from harbor_assets.settings.model import Setting, Settings

__all__ = ["LAYOUT", "Setting", "Settings", "mask_url"]
