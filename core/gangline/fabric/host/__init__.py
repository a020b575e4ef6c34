"""What a host's files say of its network: read beneath any root, judged elsewhere."""

from gangline.fabric.host.observing import observe
from gangline.fabric.host.values import Gid, Gpu, Hca, Host, Interface, Memlock, Port, Unread

__all__ = ["Gid", "Gpu", "Hca", "Host", "Interface", "Memlock", "Port", "Unread", "observe"]
