"""A whole image as one delta: what a node that begins to react has to do first."""

from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.metadata.snapshot import snapshot_records
from spindle.publication.loader import Publication


def initial_publication(image: MetadataImage) -> Publication:
    """The publication that leads from nothing to `image`.

    The steps on the way, topics that came and went, leave no trace: a reaction to one of them
    would touch disks that already are where the last one wants them.
    """
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in snapshot_records(image):
        delta.replay(record, image.provenance.last_offset)
    delta.apply(image.provenance)
    return Publication(delta, image, 0)
