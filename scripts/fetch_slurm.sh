#!/usr/bin/env bash
# Brings Slurm for tests/slurm: unpacks Debian 12's packages, and those libraries of theirs that are not installed, into
# .deps/slurm. Nothing is installed or started. Safe to run again; where it cannot be brought it says so and exits 0:
# the test that wants it is skipped then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(slurmctld slurmd slurm-client munge)
say() { printf 'slurm: %s\n' "$*"; }
without() { say "not fetched ($*); slurm_test will be skipped"; exit 0; }

[ -x /usr/sbin/slurmctld-wlm ] && [ -x /usr/sbin/slurmd-wlm ] && [ -x /usr/sbin/munged ] && [ -x /usr/bin/sbatch ] && exit 0
[ ! -e .deps/slurm/.ready ] || exit 0
[ -r /etc/os-release ] && . /etc/os-release
[ "${ID:-}-${VERSION_ID:-}" = debian-12 ] || without "this is ${ID:-unknown} ${VERSION_ID:-}, not Debian 12"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || without "apt-get or dpkg-deb is missing"

# Names and versions of what apt would install.
wanted() { apt-get install -s -qq --no-install-recommends "${packages[@]}" 2>/dev/null | sed -n 's/^Inst \([^ ]*\) .*(\([^ ]*\) .*/\1=\2/p'; }
list=$(wanted || true)
if [ -z "$list" ] && [ "$(id -u)" = 0 ]; then
  timeout 120 apt-get update -qq >/dev/null 2>&1 || without "apt-get update fails"
  list=$(wanted || true)
fi
[ -n "$list" ] || without "apt knows no ${packages[*]}"

mkdir -p .deps
rm -rf .deps/slurm .deps/slurm.*
new=$(mktemp -d "$PWD/.deps/slurm.XXXXXX")
trap 'rm -rf "$new"' EXIT
mkdir "$new/debs" "$new/root"
# shellcheck disable=SC2086
(cd "$new/debs" && timeout 120 apt-get download -qq -o APT::Sandbox::User=root $list >/dev/null 2>&1) || without "its packages cannot be downloaded"
for deb in "$new"/debs/*.deb; do dpkg-deb -x "$deb" "$new/root"; done
chmod 755 "$new/root"
touch "$new/root/.ready"
mv "$new/root" .deps/slurm
say "unpacked $(wc -w <<<"$list") packages into .deps/slurm"
