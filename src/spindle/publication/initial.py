"""A whole image as one delta, for a node that begins to react to metadata."""

from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.metadata.snapshot import snapshot_records
from spindle.publication.loader import Publication


def initial_publication(image: MetadataImage) -> Publication:
    """Return the publication that leads from the empty image to `image`.

    It contains no topics that were created and deleted before: a reaction to an earlier state would
    change disks that already have the newest one.
    """
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in snapshot_records(image):
        delta.replay(record, image.provenance.last_offset)
    delta.apply(image.provenance)
    return Publication(delta, image, 0)
