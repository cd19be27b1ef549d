# One per machine: keeps the launch's files, knows its process groups, and ends them when its standard input ends,
# which is when the launcher is done, or dead, or the connection to it is lost. Each line of input is a call of one
# of the functions below. Quoted by single quotes on its way, so it has none. $1 is how many seconds apart it looks for
# beats, 0 for never.
umask 077
trap "" HUP INT QUIT PIPE
silence=$1
dir=$(mktemp -d "${TMPDIR:-/tmp}/pomar-launch.XXXXXXXX") || exit 1
mkdir "$dir/groups"

say() { printf "pomar %s\n" "$*"; }
file() { printf "%s\n" "$2" >"$dir/$1"; }
beat() { true >"$dir/beat"; }
add() { true >"$dir/groups/$1" && say added "$1"; }
forget() {
  kill -KILL "-$1" 2>/dev/null
  rm -f "$dir/groups/$1"
}

# Signals every group; fails when none is left.
signal() {
  reached=1
  for group in "$dir"/groups/*; do
    kill "-$1" "-${group##*/}" 2>/dev/null && reached=0
  done
  return "$reached"
}

finish() {
  signal TERM && signal CONT
  for pause in 0.1 0.4 1 1 1; do
    signal 0 || break
    sleep "$pause" 2>/dev/null || sleep 1
  done
  signal KILL
  rm -rf "$dir"
}
trap finish EXIT

# A network that goes away says nothing: the launcher sends beats, and this removes the mark that they leave.
if [ "$silence" -gt 0 ]; then
  beat
  (
    trap "kill \$nap; exit 0" TERM
    while rm "$dir/beat" 2>/dev/null; do
      sleep "$silence" &
      nap=$!
      wait "$nap"
    done
    finish
    kill -KILL "$$"
  ) </dev/null >/dev/null 2>&1 &
  watch=$!
fi

# Can the program be started here? $1 is the number of the question, $2 the folder, $3 is must or try, $4 the program.
program() (
  if ! cd "$2" 2>/dev/null && [ "$3" = must ]; then
    say program "$1" folder "$2"
  elif command -v "$4" >/dev/null 2>&1; then
    say program "$1" found
  else
    say program "$1" missing "$PATH"
  fi
)

# Has this machine the address $2?
address() {
  known=$({ ip -o addr || ifconfig; } 2>/dev/null | tr "/ \t" "\n\n\n" | grep -F -e . -e :)
  if [ -z "$known" ] || printf "%s\n" "$known" | grep -qxF -e "$2"; then
    say address "$1" yes
  else
    say address "$1" no
  fi
}

# What happens on connecting to $2, port $3? Bash can connect, and is nearly everywhere; $1 is the number of the
# question. 5 s are enough for any network where ranks should talk.
hop() {
  LC_ALL=C bash -c "exec 3<>/dev/tcp/\$0/\$1" "$2" "$3" >"$dir/hop.$1" 2>&1 &
  probe=$!
  (
    trap "kill \$nap; exit 0" TERM
    sleep 5 &
    nap=$!
    wait "$nap"
    kill -KILL "$probe"
  ) >/dev/null 2>&1 &
  limit=$!
  wait "$probe" 2>/dev/null
  code=$?
  kill "$limit" 2>/dev/null
  say hop "$1" "$code" "$(head -n 1 "$dir/hop.$1")"
}

say ready "$dir"
while IFS= read -r line; do eval "$line"; done
if [ "$silence" -gt 0 ]; then kill "$watch"; fi
