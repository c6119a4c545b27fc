#!/usr/bin/env bash
# Puts the Python package together in a folder: its sources, and the messages that protoc makes of proto/manta/v1.
#   sdk/python/build.sh build/python && PYTHONPATH=build/python python3 -c 'import manta'
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 64; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1/manta/v1"
cp "$root"/sdk/python/manta/*.py "$1/manta/"
"${PROTOC:-protoc}" -I "$root/proto" --python_out="$1" "$root"/proto/manta/v1/*.proto
touch "$1/manta/v1/__init__.py"
