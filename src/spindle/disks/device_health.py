"""The health of the block device below a log directory, as the system reports it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The health of a device, or of all disks below a logical volume. None where it is unknown.

    Attributes:
        device: the names of the disks in the kernel, such as `sda` or `nvme0n1,nvme1n1`.
        errors: failed commands since the start of the machine, as the kernel counts them (SCSI).
        smart_passed: the SMART self-assessment; False if one of the disks failed it.
        media_errors: pending and uncorrectable sectors (ATA), or media errors (NVMe).
    """

    device: str
    errors: int | None = None
    smart_passed: bool | None = None
    media_errors: int | None = None
