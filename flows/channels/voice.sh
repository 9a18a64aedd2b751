#!/bin/sh
# Speaks the words of a run's agents and its questions; typed lines answer. README.md in this folder explains the use.
set -eu

usage() {
  echo "usage: voice.sh [--out FOLDER] [--listen FIFO] [--voice NAME] [--speed WORDS_PER_MINUTE]" >&2
  exit 2
}

out='' fifo='' voice=en speed=175
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --out) out=$2 ;;
    --listen) fifo=$2 ;;
    --voice) voice=$2 ;;
    --speed) speed=$2 ;;
    *) usage ;;
  esac
  shift 2
done

for program in espeak-ng jq; do
  command -v "$program" >/dev/null || { echo "voice.sh needs $program" >&2; exit 1; }
done
[ -z "$out" ] || mkdir -p "$out"

# The latest question and the latest agent, for `listen`.
memory=$(mktemp -d)
listener=
trap '[ -z "$listener" ] || kill "$listener" 2>/dev/null; rm -rf "$memory"' EXIT
tab=$(printf '\t')

# A typed line answers the open question; without one it goes to the agent that spoke last.
listen() {
  while IFS= read -r line; do
    if [ -s "$memory/question" ]; then
      jq -cn --arg gate "$(cat "$memory/question")" --arg answer "$line" '{verb: "reply", $gate, $answer}'
      : >"$memory/question"
    elif [ -s "$memory/agent" ]; then
      jq -cn --arg node "$(cat "$memory/agent")" --arg content "$line" '{verb: "sendTo", $node, $content}'
    else
      echo "nobody listens yet: $line" >&2
    fi
  done
}

if [ -n "$fifo" ]; then
  [ -p "$fifo" ] || mkfifo "$fifo"
  # Open for writing too, so that reading does not end when a writer closes the pipe.
  listen <>"$fifo" &
  listener=$!
fi

# Prints for each event with text: a word for its kind, the agent or node, and the text.
utterances() {
  jq --unbuffered -r '
    def line($kind; $whom; $text):
      [$kind, $whom, ($text | gsub("[[:cntrl:]]+"; " "))] | join("\t");
    def address: (if .scope then .scope + "." else "" end) + (.taskId // .nodeId // "");
    if .type == "agent:message" then
      line("agent"; address; [.content[]? | select(.type == "text") | .text] | join(" "))
    elif .type == "agent:tool:permission" then
      line("question"; .address; .prompt)
    elif .type == "task:paused" and .question then
      line("question"; address;
        .question.prompt + ((.question.choices // []) | if . == [] then "" else ". " + join(", or ") + "?" end))
    elif .type == "session:reply" then
      line("answered"; ""; "")
    elif .type == "channel:answer" and (.ok | not) then
      line("problem"; ""; .error.message)
    else empty end'
}

# The text comes on standard input, so it is never read as options or as markup.
speak() {
  if [ -z "$out" ]; then
    printf '%s\n' "$1" | espeak-ng -v "$voice" -s "$speed" --stdin
  else
    count=$((count + 1))
    file=$(printf '%s/%04d.wav' "$out" "$count")
    printf '%s\n' "$1" | espeak-ng -v "$voice" -s "$speed" -w "$file.part" --stdin
    mv "$file.part" "$file"
  fi
}

count=0
utterances | while IFS="$tab" read -r kind whom text; do
  case $kind in
    question) printf '%s' "$whom" >"$memory/question" ;;
    answered) : >"$memory/question" ;;
    agent) printf '%s' "$whom" >"$memory/agent" ;;
    problem) echo "not done: $text" >&2 ;;
  esac
  case $kind in
    agent | question) [ -z "$text" ] || speak "$text" ;;
  esac
done
