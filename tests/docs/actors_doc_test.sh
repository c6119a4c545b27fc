#!/usr/bin/env bash
# What docs/actors.md says, done: its files are written where it says `NAME`:, its commands are run in order in one shell,
# and where a text block follows a command block, the commands must print exactly that. Then what it claims of a killed
# actor. The C++ actor must stay under 60 lines. The part in Python needs grpcio: without it that part alone is left out.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${MANTA_BUILD_DIR:-$root/build}
work=$(mktemp -d "${TMPDIR:-/tmp}/actors-doc.XXXXXX")
mkdir "$work/dir" "$work/manta" "$work/cluster"
export MANTA_DIR=$work/cluster MANTA=$work/manta MANTA_TEST_MARK=actors-doc-$$
# MANTA/build is the build folder that is under test, whatever its name.
ln -s "$build" "$MANTA/build"
ln -s "$root/.deps" "$MANTA/.deps"
failures=0
fail() { echo "FAIL $*"; failures=$((failures + 1)); }
ok() { echo "ok   $*"; }
finish() {
  "$build/bin/manta" stop --all --dir "$MANTA_DIR" >/dev/null 2>&1
  local environ pid
  for environ in /proc/[0-9]*/environ; do  # whatever is left of it
    pid=${environ#/proc/}; pid=${pid%/environ}
    [ "$pid" != $$ ] && grep -qz "^MANTA_TEST_MARK=$MANTA_TEST_MARK$" "$environ" 2>/dev/null &&
      ! grep -qz "actors_doc_test" "/proc/$pid/cmdline" 2>/dev/null && kill -9 "$pid" 2>/dev/null
  done
  [ $failures = 0 ] && rm -rf "$work"
}
trap finish EXIT

# Blocks as files: 01.file (with 01.name), 02.sh, 03.text; a heading "## An actor in Python" begins the Python part.
awk -v out="$work" '
  /^## / { python = ($0 ~ /Python/) }
  /(^|, )`[A-Za-z_.]+`:$/ { count = split($0, parts, "`"); name = parts[count - 1] }
  /^```/ && !inside {
    inside = 1; kind = substr($0, 4)
    file = ""
    if (kind == "sh" || kind == "text") { file = sprintf("%s/%02d.%s", out, ++n, kind) }
    else if (name != "") { file = sprintf("%s/%02d.file", out, ++n); print name > sprintf("%s/%02d.name", out, n) }
    if (file != "" && python) { print "" > sprintf("%s/%02d.python", out, n) }
    if (file != "") printf "" > file
    name = ""
    next
  }
  /^```$/ && inside { inside = 0; if (file != "") close(file); next }
  inside && file != "" { print > file }' "$root/docs/actors.md"
[ -e "$work/01.sh" ] || { fail "no blocks in docs/actors.md"; exit 1; }

cd "$work/dir"
python=yes
(export PYTHONPATH=$MANTA/build/python:$MANTA/.deps/python; python3 -c 'import grpc, google.protobuf' 2>/dev/null) || {
  python=no
  echo "SKIP python-grpcio: the part in Python is left out (make setup brings grpcio)"
}
last="" last_kind=""
for block in "$work"/[0-9][0-9].file "$work"/[0-9][0-9].sh "$work"/[0-9][0-9].text; do echo "$block"; done | sort >"$work/blocks"
while read -r block <&3; do
  stem=${block%.*}
  [ -e "$stem.python" ] && [ $python = no ] && [ "$(head -c 10 "$block")" != "manta stop" ] && continue
  case $block in
    *.file) cp "$block" "$(cat "$stem.name")" ;;
    *.sh)
      # In this shell: what is exported stays. The line of a failing command ends the test.
      [ -e "$stem.python" ] && [ $python = no ] && sed -i '/tally/d' "$block"
      if [ "$(head -c 10 "$block")" = "manta stop" ]; then continue; fi  # at the end
      last=$stem.out
      while IFS= read -r line <&4; do
        echo "+ $line"
        eval "$line" >>"$last" 2>"$stem.err" || { fail "'$line' ended with $?: $(tail -5 "$stem.err")"; cat "$last"; exit 1; }
      done 4<"$block" ;;
    *.text)
      # The last lines: some commands above it print what is not shown.
      tail -n "$(wc -l <"$block")" "$last" | diff - "$block" && ok "$(head -1 "$block") ..." || fail "what was printed is not what the document shows" ;;
  esac
done 3<"$work/blocks"

lines=$(grep -c . counter.cc)
[ "$lines" -lt 60 ] && ok "counter.cc has $lines lines" || fail "counter.cc has $lines lines, expected fewer than 60"
if [ $python = yes ]; then
  lines=$(grep -c . tally.py)
  [ "$lines" -lt 60 ] && ok "tally.py has $lines lines" || fail "tally.py has $lines lines, expected fewer than 60"
fi

# Killed, it comes back under its name, and its count begins anew.
names=counter; [ $python = yes ] && names="counter tally"
for name in $names; do
  pid=$(manta actors | awk -v name="$name-0" 'substr($1, length($1) - length(name) + 1) == name { print $4 }')
  [ "${pid:-0}" -gt 1 ] || { fail "no pid of $name"; continue; }
  kill -9 "$pid"
  got=""
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    got=$(manta call "$name" add 1 --type google.protobuf.Int32Value --timeout 10 2>>"$work/again.err") && break
    sleep 0.5
  done
  [ "$got" = 1 ] && ok "$name was killed, and is there again" || fail "$name after its kill: '$got' $(tail -3 "$work/again.err")"
done

manta stop counters || fail "manta stop counters"
if [ $python = yes ]; then manta stop tally || fail "manta stop tally"; fi
manta jobs >"$work/jobs"
grep -q "counters.*ENDED" "$work/jobs" && ok "the job has ended" || { fail "the job has not ended"; cat "$work/jobs"; }
manta stop --all >/dev/null || fail "manta stop --all"
left=$(pgrep -f "$work/dir/build/counter" | head -3)
[ -z "$left" ] && ok "nothing is left" || fail "left: $left"
[ $failures = 0 ]
