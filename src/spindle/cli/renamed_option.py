"""An option that still accepts the names that it had before."""

from collections.abc import Sequence
from typing import Any

import click


class RenamedOption(click.Option):
    """An option with earlier names, which no help and no error shows.

    Attributes:
        former: the earlier names, such as `--above`.
    """

    def __init__(self, param_decls: Sequence[str], *, former: Sequence[str], **attrs: Any) -> None:
        super().__init__([*param_decls, *former], **attrs)
        self.former = frozenset(former)
        self._names = [name for name in self.opts if name not in former]
        self._all = self.opts

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.opts = self._names
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = self._all

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return " / ".join(f"'{name}'" for name in self._names)
