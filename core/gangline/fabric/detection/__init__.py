"""What a host's fabric is: its profile, what every NIC is for, what is missing and how to mend it."""

from gangline.fabric.detection.detecting import detect, judge
from gangline.fabric.detection.values import Detection, Fit, Nic, Role

__all__ = ["Detection", "Fit", "Nic", "Role", "detect", "judge"]
