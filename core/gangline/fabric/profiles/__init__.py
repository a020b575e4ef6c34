"""What is known of kinds of machines, as data."""

from gangline.fabric.profiles.loading import load_catalogue
from gangline.fabric.profiles.values import Catalogue, Kind, Library, Match, NicKind, Profile, Setting

__all__ = ["Catalogue", "Kind", "Library", "Match", "NicKind", "Profile", "Setting", "load_catalogue"]
