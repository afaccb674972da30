"""`spindle completion`: the script with which a shell completes commands and options."""

import click
from click.shell_completion import get_completion_class

from spindle.cli.examples import examples

VARIABLE = "_SPINDLE_COMPLETE"


@click.command(
    "completion",
    epilog=examples("spindle completion bash > ~/.local/share/bash-completion/completions/spindle"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(spindle completion bash)"
    zsh:   eval "$(spindle completion zsh)"
    fish:  spindle completion fish | source
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, shell
    click.echo(completion_class(context.find_root().command, {}, "spindle", VARIABLE).source())
