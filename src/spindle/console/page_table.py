"""The pages of the console, in the order of the menu."""

from typing import Final

from spindle.console.page import Page
from spindle.console.pages import action_log, disk, group, groups, overview, topic, topics

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    disk.PAGE,
    topics.PAGE,
    topic.PAGE,
    groups.PAGE,
    group.PAGE,
    action_log.PAGE,
)
