"""`tiered completion bash|zsh|fish`: a script that completes what is being typed, made from argparse's own tree.

Owns the table of words that the scripts carry, and the few lines of each shell that look into it. The table is
written once, so a key never starts Python, except where a name is due that a broker knows, of a topic, group, broker,
snapshot or transaction: then the script asks `tiered topics list` or the like, for a moment and without a word when no
broker answers.

A state is the command so far: "", "topics", "topics create". For each one the table has the words that may come
(commands), its options, which options take a value, and what that value or a bare word may be.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tiered.cli.parser import build_parser
from tiered.config.broker import BROKER_SETTINGS
from tiered.config.topic import TOPIC_SETTINGS

FILES, FOLDERS, TOPICS, GROUPS, BROKERS, SNAPSHOTS = "@file", "@dir", "@topics", "@groups", "@brokers", "@snapshot"
TRANSACTIONS = "@transactions"
"""What a value may be besides one of some words: the shells know how to find files; `tiered NOUN list` has the rest."""

_BY_METAVAR = {
    "FILE": FILES,
    "DIR": FOLDERS,
    "TOPIC": TOPICS,
    "TOPIC[:P,...]": TOPICS,
    "GROUP": GROUPS,
    "BROKER": BROKERS,
    "SNAPSHOT": SNAPSHOTS,
    "TRANSACTIONAL-ID": TRANSACTIONS,
}
_ASKED_FOR = (TOPICS, GROUPS, BROKERS, SNAPSHOTS, TRANSACTIONS)
ASK_TIMEOUT_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionWords:
    """One option: all its names, what its value may be (None: it takes none), and its help."""

    names: tuple[str, ...]
    value: tuple[str, ...] | None
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The words that may follow `path`."""

    path: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    options: tuple[OptionWords, ...]
    words: tuple[str, ...]
    """What a bare word may be, whichever of them it is: few commands of ours name more than one kind of thing."""


def run(arguments: argparse.Namespace) -> None:
    """Prints the script."""
    states = list(states_of(build_parser()))
    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    sys.stdout.write(scripts[arguments.shell](states))


def states_of(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[State]:
    """The parser's state and those of all its commands, outermost first."""
    commands: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    options: list[OptionWords] = []
    words: tuple[str, ...] = ()
    for action in parser._actions:  # noqa: SLF001 - argparse shows its tree to nobody; the tests hold us to it.
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            commands = dict(action.choices)
            helps = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
        elif action.option_strings:
            takes_value = action.nargs != 0
            options.append(
                OptionWords(
                    names=tuple(action.option_strings),
                    value=_values(action, path) if takes_value else None,
                    help=action.help or "",
                )
            )
        else:
            words = tuple(dict.fromkeys((*words, *_values(action, path))))
    yield State(
        path=path,
        commands=tuple((name, helps.get(name, "")) for name in commands),
        options=tuple(options),
        words=words,
    )
    for name, each in commands.items():
        yield from states_of(each, (*path, name))


def _values(action: argparse.Action, path: tuple[str, ...]) -> tuple[str, ...]:
    if action.choices is not None:
        return tuple(str(each) for each in action.choices)
    if action.metavar in ("KEY", "KEY=VALUE"):
        registry = TOPIC_SETTINGS if path[:1] == ("topics",) else BROKER_SETTINGS
        return tuple(name if action.metavar == "KEY" else f"{name}=" for name in registry)
    found = _BY_METAVAR.get(str(action.metavar))
    return () if found is None else (found,)


def _quoted(text: str) -> str:
    """The text as one word of any of the three shells; ours holds no control characters."""
    return "'" + text.replace("\\", "").replace("'", "") + "'"


def bash_script(states: list[State]) -> str:
    """For bash 4 or newer, without the package bash-completion."""
    return _shell_function(states) + _BASH_END


def zsh_script(states: list[State]) -> str:
    """For zsh after compinit: words with their descriptions."""
    return _shell_function(states) + _ZSH_END


def _shell_function(states: list[State]) -> str:
    """`_tiered_words STATE KIND`: the table as one `case`, which bash and zsh read alike."""
    lines = ["# Made by `tiered completion`; make it anew after an upgrade.", "_tiered_table() {", '  case "$1" in']
    for state in states:
        path = " ".join(state.path)
        commands = [name for name, _ in state.commands]
        options = [name for each in state.options for name in each.names]
        for kind, words in (("commands", commands), ("options", options), ("words", state.words)):
            if words:
                lines.append(f"    {_quoted(f'{path}|{kind}')}) printf '%s\\n' {_quoted(' '.join(words))} ;;")
        for each in state.options:
            if each.value is not None:
                patterns = "|".join(_quoted(f"{path}|{name}") for name in each.names)
                lines.append(f"    {patterns}) printf '%s\\n' {_quoted(' '.join(each.value) or '@any')} ;;")
    lines += ["  esac", "}", ""]
    return "\n".join(lines) + _SHARED


_SHARED = f"""
# The state after the words $2..., and whether the last of them waits for its value: `state|value of`.
_tiered_state() {{
  local state='' pending='' word
  for word in "$@"; do
    if [ -n "$pending" ]; then pending=''; continue; fi
    case "$word" in
      --*=*) ;;
      -*) if [ -n "$(_tiered_table "$state|$word")" ]; then pending="$word"; fi ;;
      *)
        case " $(_tiered_table "$state|commands") " in
          *" $word "*) if [ -n "$state" ]; then state="$state $word"; else state="$word"; fi ;;
        esac ;;
    esac
  done
  printf '%s|%s' "$state" "$pending"
}}

# Names from the broker that the line names, else from the usual one; nothing where none answers soon.
_tiered_ask() {{
  local noun="$1" bootstrap='' http='' word previous=''
  shift
  for word in "$@"; do
    case "$previous" in -b|--bootstrap) bootstrap="$word" ;; --http) http="$word" ;; esac
    case "$word" in --bootstrap=*) bootstrap="${{word#--bootstrap=}}" ;; --http=*) http="${{word#--http=}}" ;; esac
    previous="$word"
  done
  set -- "${{_tiered_program:-tiered}}" "$noun" list --quiet
  if [ -n "$bootstrap" ]; then set -- "$@" --bootstrap "$bootstrap"; fi
  if [ -n "$http" ] && [ "$noun" = snapshot ]; then set -- "$@" --http "$http"; fi
  if command -v timeout >/dev/null 2>&1; then set -- timeout {ASK_TIMEOUT_S} "$@"; fi
  "$@" 2>/dev/null </dev/null
}}
"""

_BASH_END = """
_tiered_complete() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous='' found state pending kinds kind plain=''
  local _tiered_program="${COMP_WORDS[0]}"
  # bash cuts --option=value into three words, and host:port too.
  local -a before=()
  local word glue=''
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in
      =) glue='' ;;
      :) if [ ${#before[@]} -gt 0 ]; then before[-1]+=':' glue=yes; fi ;;
      *) if [ -n "$glue" ]; then before[-1]+="$word" glue=''; else before+=("$word"); fi ;;
    esac
  done
  if [ "$current" = '=' ]; then current=''; fi
  found="$(_tiered_state "${before[@]}")"
  state="${found%%|*}" pending="${found#*|}"
  COMPREPLY=()
  if [ -n "$pending" ]; then
    kinds="$(_tiered_table "$state|$pending")"
  elif [ "${current#-}" != "$current" ]; then
    COMPREPLY=($(compgen -W "$(_tiered_table "$state|options")" -- "$current"))
    return
  else
    kinds="$(_tiered_table "$state|commands")"
    if [ -z "$kinds" ]; then kinds="$(_tiered_table "$state|words")"; fi
  fi
  for kind in $kinds; do
    case "$kind" in
      @any) ;;
      @file) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
      @dir) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$current") ;;
      @*) COMPREPLY+=($(compgen -W "$(_tiered_ask "${kind#@}" "${before[@]}")" -- "$current")) ;;
      *) plain="$plain $kind" ;;
    esac
  done
  COMPREPLY+=($(compgen -W "$plain" -- "$current"))
  case "${COMPREPLY[*]}" in *=) compopt -o nospace 2>/dev/null ;; esac
}
complete -F _tiered_complete tiered
"""

_ZSH_END = """
_tiered_complete() {
  local found state pending kind _tiered_program="${words[1]}"
  local -a before kinds
  before=("${(@)words[2,CURRENT-1]}")
  found="$(_tiered_state "${before[@]}")"
  state="${found%%|*}" pending="${found#*|}"
  if [[ -n "$pending" ]]; then
    kinds=(${=$(_tiered_table "$state|$pending")})
  elif [[ "$PREFIX" == -*=* ]]; then
    kinds=(${=$(_tiered_table "$state|${PREFIX%%=*}")})
    compset -P '*='
  elif [[ "$PREFIX" == -* ]]; then
    compadd -- ${=$(_tiered_table "$state|options")}
    return
  else
    kinds=(${=$(_tiered_table "$state|commands")})
    if (( ! $#kinds )); then kinds=(${=$(_tiered_table "$state|words")}); fi
  fi
  for kind in $kinds; do
    case "$kind" in
      @any) ;;
      @file) _files ;;
      @dir) _files -/ ;;
      @*) compadd -- ${(f)"$(_tiered_ask "${kind#@}" "${before[@]}")"} ;;
      *=) compadd -S '' -- "$kind" ;;
      *) compadd -- "$kind" ;;
    esac
  done
}
compdef _tiered_complete tiered
"""


def fish_script(states: list[State]) -> str:
    """For fish: one `complete` for each word, with its description."""
    paths = " ".join(_quoted(" ".join(state.path)) for state in states if state.path)
    lines = [_FISH_HEAD.strip(), f"set -g __tiered_paths {paths}"]
    for state in states:
        here = _quoted(f"__tiered_at {' '.join(state.path)}".rstrip())
        for name, what in state.commands:
            lines.append(f"complete -c tiered -n {here} -f -a {_quoted(name)} -d {_quoted(what)}")
        lines += [f"complete -c tiered -n {here} {_fish_option(option)}" for option in state.options]
        if state.words:
            lines.append(f"complete -c tiered -n {here} {_fish_values(state.words)}")
    return "\n".join(lines) + "\n"


def _fish_option(option: OptionWords) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    value = "" if option.value is None else f" -r {_fish_values(option.value)}".rstrip()
    return f"{names}{value} -d {_quoted(option.help.split(';')[0])}"


def _fish_values(values: tuple[str, ...]) -> str:
    asked = [f"-a '(__tiered_ask {each[1:]})'" for each in values if each in _ASKED_FOR]
    if FILES in values:
        return " ".join(["-F", *asked[:1]])
    if FOLDERS in values:
        return "-f -a '(__fish_complete_directories)'"
    if asked:
        return f"-f {asked[0]}"
    return f"-f -a {_quoted(' '.join(values))}" if values else "-f"


_FISH_HEAD = f"""
# Made by `tiered completion`; make it anew after an upgrade.
complete -c tiered -f
function __tiered_at --description 'True when exactly these commands were typed'
    set -l typed ''
    for word in (commandline -opc)
        set -l next (string trim -- "$typed $word")
        contains -- $next $__tiered_paths; and set typed $next
    end
    test "$typed" = "$argv"
end
function __tiered_ask --description 'Names from the broker; nothing where none answers soon'
    set -l program (commandline -opc)[1]
    set -l broker
    set -l words (commandline -opc)
    for index in (seq (count $words))
        contains -- $words[$index] -b --bootstrap; and set broker --bootstrap $words[(math $index + 1)]
        test "$argv[1] $words[$index]" = 'snapshot --http'; and set broker --http $words[(math $index + 1)]
    end
    if command -q timeout
        timeout {ASK_TIMEOUT_S} $program $argv[1] list --quiet $broker 2>/dev/null </dev/null
    else
        $program $argv[1] list --quiet $broker 2>/dev/null </dev/null
    end
end
"""
