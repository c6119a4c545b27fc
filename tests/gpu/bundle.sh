#!/usr/bin/env bash
# Packs what tests/gpu/run.sh runs on a GPU machine into .bundle (ignored by git): programs, the libraries that they need and
# that machine lacks, golden values, the quickstart's recipe and assets.
#
#   tests/gpu/bundle.sh [BUILD_FOLDER]        default: build/cuda, configured here for sm_90a alone if it is not there yet
#
# Programs that are not built are built first; with MANTA_BUNDLE_PREBUILT=1 what is there is taken as it is. On the GPU
# machine: bash .bundle/run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/cuda}
shared=${MANTA_SHARED_DIR:-../shared}
programs=(manta manta-controller manta-node manta-train manta-gen manta-reward golden_models gpu_bench)
tests=(gpu_kernels_test gpu_nccl_test gpu_weights_test)
[ -x "$shared/device/bundle.sh" ] || { echo "bundle.sh: $shared/device/bundle.sh is needed" >&2; exit 1; }

if [ ! -e "$build/build.ninja" ]; then
  cmake -S . -B "$build" -G Ninja -DMANTA_CUDA=ON \
    "-DMANTA_CUDA_FLAGS=-gencode;arch=compute_90a,code=sm_90a;--expt-relaxed-constexpr;-Xcompiler;-fPIC"
fi
if [ "${MANTA_BUNDLE_PREBUILT:-0}" != 1 ]; then
  known=$(ninja -C "$build" -t targets all | cut -d: -f1)
  want=(manta_cuda_library)
  for target in "${programs[@]}" "${tests[@]}"; do
    if grep -qx "$target" <<<"$known"; then want+=("$target"); fi
  done
  ninja -C "$build" -j"${MANTA_BUNDLE_JOBS:-2}" "${want[@]}"
fi

files=("$build/lib/libmanta_cuda.so")
for program in "${programs[@]}"; do [ -x "$build/bin/$program" ] && files+=("$build/bin/$program"); done
for test in "${tests[@]}"; do [ -x "$build/tests/$test" ] && files+=("$build/tests/$test"); done
staging=build/gpu-bundle  # packed into one archive: what may travel is counted in bytes
"$shared/device/bundle.sh" "$staging" "${files[@]}" >/dev/null
mv "$staging/run.sh" "$staging/with_libraries.sh"
mkdir -p "$staging/goldens"
[ -d "$shared/goldens/models" ] && cp -r "$shared/goldens/models" "$staging/goldens/models"
cp -r configs assets "$staging/"
rm -rf .bundle; mkdir .bundle
tar -C "$staging" -czf .bundle/files.tar.gz .
cp tests/gpu/run.sh .bundle/run.sh
echo ".bundle: $(du -sm .bundle | cut -f1) MiB; programs: $(ls "$staging/bin" | tr '\n' ' ')"
