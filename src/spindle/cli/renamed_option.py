"""An option that still accepts its former names."""

from collections.abc import Sequence
from typing import Any

import click


class RenamedOption(click.Option):
    """An option with former names, which no help, error or completion shows.

    Attributes:
        former: the former names, such as `--above`.
    """

    def __init__(self, param_decls: Sequence[str], *, former: Sequence[str], **attrs: Any) -> None:
        super().__init__(param_decls, **attrs)
        self.former = tuple(former)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        names = self.opts
        self.opts = [*names, *self.former]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = names
