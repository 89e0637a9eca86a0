"""Shell completion: a script that holds the commands, their flags and the values that these take, so that a Tab starts no process."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _flags, _help

_BASH = """_tftrt_files() {
  COMPREPLY=($(compgen -f -- "$1"))
  compopt -o filenames 2> /dev/null || true
}
_tftrt() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="" command="${COMP_WORDS[1]}" found="" flag=""
  [ "$COMP_CWORD" -gt 1 ] && before="${COMP_WORDS[COMP_CWORD-1]}"
  # Where "=" parts words, --flag=value is three of them.
  case "$word" in --*=*) flag="${word%%=*}"; word="${word#*=}" ;; esac
  [ "$word" = "=" ] && { flag="$before"; word=""; }
  [ "$before" = "=" ] && [ "$COMP_CWORD" -gt 2 ] && flag="${COMP_WORDS[COMP_CWORD-2]}"
  local prefix=""
  [ "${COMP_WORDS[COMP_CWORD]}" != "$word" ] && [ "${COMP_WORDS[COMP_CWORD]}" != "=" ] && prefix="$flag="
  COMPREPLY=()
  if [ -n "$flag" ]; then
    case "$command $flag" in
VALUES
    esac
    if [ -n "$found" ]; then COMPREPLY=($(compgen -W "$found" -- "$word"))
    else _tftrt_files "$word"; fi
    COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
    return
  fi
  if [ "$COMP_CWORD" -eq 1 ] || [ "$command" = help ]; then
    COMPREPLY=($(compgen -W "COMMANDS" -- "$word"))
    return
  fi
  case "$word" in
    -*)
      case "$command" in
FLAGS
      esac
      COMPREPLY=($(compgen -W "$found" -- "$word"))
      case "${COMPREPLY[0]}" in *=) compopt -o nospace 2> /dev/null ;; esac ;;
    *) _tftrt_files "$word" ;;
  esac
}
complete -F _tftrt tftrt
"""
_ZSH = """autoload -Uz compinit && (( $+functions[compdef] )) || compinit
_tftrt() {
  local command=$words[2] word=$words[CURRENT] flag="" found=""
  if (( CURRENT == 2 )) || [[ $command == help ]]; then
    found="COMMANDS"
    compadd -- ${=found}
    return
  fi
  if [[ $word == --*=* ]]; then
    flag=${word%%=*}
    case "$command $flag" in
VALUES
    esac
    compset -P '*='
    if [[ -n $found ]]; then compadd -- ${=found}; else _files; fi
    return
  fi
  if [[ $word == -* ]]; then
    case $command in
FLAGS
    esac
    local -a all=(${=found})
    compadd -S '' -- ${(M)all:#*=}
    compadd -- ${all:#*=}
    return
  fi
  _files
}
compdef _tftrt tftrt
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH}
USAGE = f"usage: tftrt completion {'|'.join(_SCRIPTS)}"


def script(shell: str, commands: Mapping[str, str]) -> str:
    """The script for `shell`. Args: commands: {name: what it is for}. Raises: UsageError for a shell that has none."""
    if shell not in _SCRIPTS:
        raise errors.UsageError(f"no completion for {shell!r}" if shell else "the shell is missing", USAGE)
    flags, values = [], []
    for name in commands:
        defined = _flags.defaults(importlib.import_module(f"tftrt_tools.command_line.commands.{name}"))
        words: list[str] = []
        for one in map(defined.__getitem__, _help.shown(defined)):
            words += [f"--{one.name}", f"--no{one.name}"] if one.boolean else [f"--{one.name}="]
            if few := _help.offered(one):
                values.append(f'      "{name} --{one.name}") found="{" ".join(few)}" ;;')
        flags.append(f'        {name}) found="{" ".join(words)}" ;;')
    text = _SCRIPTS[shell].replace("VALUES", "\n".join(values)).replace("FLAGS", "\n".join(flags))
    text = text.replace("COMMANDS", " ".join([*commands, "help", "completion"]))
    return f"# Completion of tftrt for {shell}: source <(tftrt completion {shell})\n{text}"
