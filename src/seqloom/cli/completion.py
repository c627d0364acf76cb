"""`seqloom completion`: what a shell needs to complete a command line."""

from __future__ import annotations

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that lets the shell complete what you type: verbs, options, their choices.

    bash: seqloom completion bash > ~/.local/share/bash-completion/completions/seqloom

    zsh: seqloom completion zsh > ~/.zsh/completions/_seqloom, a folder of your fpath

    fish: seqloom completion fish > ~/.config/fish/completions/seqloom.fish

    Parameters
    ----------
    shell
        The shell to write for.
    """
    from seqloom.cli.main import build_app

    print(build_app().generate_completion(shell=shell))
