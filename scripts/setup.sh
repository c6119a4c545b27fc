#!/usr/bin/env bash
# Brings what Manta needs to build and run: Debian packages by apt, LibTorch and grpcio by pip into .deps/.
# Safe to run again: what is there is skipped. On a system other than Debian 12 it lists what is missing, and takes
# MANTA_PACKAGES=mine as word that the like of it is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build ccache mold pkg-config python3 python3-pip unzip ca-certificates
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libyaml-cpp-dev nlohmann-json3-dev libsimdjson-dev
  libpcre2-dev libutf8proc-dev libspdlog-dev libfmt-dev libcli11-dev
  libgtest-dev libgmock-dev libbenchmark-dev zlib1g-dev libssl-dev libsqlite3-dev)

say() { printf 'setup: %s\n' "$*"; }

if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
  say "this is $(uname -s) on $(uname -m); Manta is built on Linux on x86_64"
  exit 1
fi

missing=()
if [ "${MANTA_PACKAGES:-}" = mine ]; then
  :
elif command -v dpkg-query >/dev/null; then
  for p in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
  done
else
  missing=("${packages[@]}")
fi
if [ ${#missing[@]} -gt 0 ]; then
  id=unknown; version=""
  [ -r /etc/os-release ] && { . /etc/os-release; id=$ID; version=${VERSION_ID:-}; }
  if [ "$id" != debian ] || [ "$version" != 12 ]; then
    say "this is $id $version; Manta's packages are known for Debian 12 only. Install the like of these, then set MANTA_PACKAGES=mine:"
    printf '  %s\n' "${missing[@]}"
    exit 1
  fi
  sudo=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { say "needs root or sudo to install: ${missing[*]}"; exit 1; }
    sudo=sudo
  fi
  say "installing ${#missing[@]} Debian packages"
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# LibTorch: the C++ side of the torch wheel, without its Python, its old protoc and its protobuf headers,
# both of which would shadow the system's.
torch_version=2.11.0
have_cuda=0
{ command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; } && have_cuda=1
stamp=".deps/.torch-$torch_version-cuda$have_cuda"
if [ ! -e "$stamp" ]; then
  say "fetching LibTorch $torch_version (530 MB)"
  mkdir -p .deps; rm -rf .deps/wheels.*
  wheels=$(mktemp -d .deps/wheels.XXXXXX)  # /tmp may be too small for them
  trap 'rm -rf "$wheels"' EXIT
  want=(torch==$torch_version nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
  [ $have_cuda = 1 ] && want+=(nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5 nvidia-cufile==1.15.1.6)
  for w in "${want[@]}"; do
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
      --python-version 3.11 --implementation cp --abi cp311 --abi none --abi abi3 \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_25_x86_64 \
      --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$wheels" "$w"
  done
  rm -rf .deps/torch .deps/nvidia .deps/.torch-*
  libs=('torch/lib/libc10.so' 'torch/lib/libtorch.so' 'torch/lib/libtorch_cpu.so' 'torch/lib/libtorch_global_deps.so' 'torch/lib/libgomp*')
  [ $have_cuda = 1 ] && libs+=('torch/lib/libc10_cuda.so' 'torch/lib/libtorch_cuda*.so' 'torch/lib/libtorch_nvshmem.so')
  unzip -q -o "$wheels"/torch-*.whl "${libs[@]}" 'torch/include/*' -x 'torch/include/google/*' -d .deps
  for w in "$wheels"/nvidia_*.whl; do unzip -q -o "$w" 'nvidia/*/lib/*.so*' -d .deps; done
  touch "$stamp"
fi

# gRPC and Protocol Buffers for Python: actors and clients in Python need them (docs/actors.md), nothing else of Manta
# does. So a machine that cannot have them goes on without; what needs them says so.
stamp=.deps/.python-grpcio-1.85.3-protobuf-7.36.2
if [ ! -e "$stamp" ]; then
  say "fetching grpcio for Python (7 MB)"
  mkdir -p .deps; rm -rf .deps/python .deps/.python-*
  if python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --only-binary=:all: \
       --target .deps/python grpcio==1.85.3 protobuf==7.36.2; then
    touch "$stamp"
  else
    say "no grpcio for this Python: actors in Python will not run, and their tests are skipped"
  fi
fi
say "ready"
