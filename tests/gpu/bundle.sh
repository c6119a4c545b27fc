#!/usr/bin/env bash
# Packs what tests/gpu/run.sh runs on a GPU machine into .bundle (ignored by git): programs, the libraries that they need and
# that machine lacks, golden values, the quickstart's recipe and assets.
#
#   tests/gpu/bundle.sh [BUILD_FOLDER]        default: build/cuda, configured here for sm_90a alone if it is not there yet
#
# Programs that are not built are built first; with MANTA_BUNDLE_PREBUILT=1 what is there is taken as it is. Golden values
# are those of $MANTA_SHARED_DIR/goldens/models (../shared) where that is there, and else this repository's few. The GPU
# machine needs LibTorch 2.11 with CUDA 13, as its Python's `torch` has it. There: bash .bundle/run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/cuda}
shared=${MANTA_SHARED_DIR:-../shared}
programs=(manta manta-controller manta-node manta-train manta-gen manta-reward golden_models gpu_bench)
tests=(gpu_kernels_test gpu_nccl_test gpu_weights_test)

# pack FOLDER FILE...: the files without debug information in FOLDER/bin and lib, and in lib what they need of this
# machine's libraries. The GPU machine has its own C and C++ run time, LibTorch, CUDA, NCCL and cuDNN.
pack() {
  local folder=$1 file line name path; shift
  rm -rf "$folder"; mkdir -p "$folder/bin" "$folder/lib"
  for file in "$@"; do
    case $file in *.so) strip --strip-debug -o "$folder/lib/${file##*/}" "$file" ;; *) strip --strip-debug -o "$folder/bin/${file##*/}" "$file" ;; esac
    while read -r line; do
      name=${line%% *}; path=${line#*=> }; path=${path%% (*}
      case ${name##*/} in
        ld-linux* | libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | libresolv.so* | libstdc++.so* | libgcc_s.so* | libgomp.so* | linux-vdso*) continue ;;
        libtorch* | libc10* | libshm* | libcuda* | libcublas* | libcudnn* | libcufft* | libcufile* | libcupti* | libcurand* | libcusolver* | libcusparse* | libnv* | libnccl*) continue ;;
      esac
      [ "$path" != "not found" ] || { echo "bundle.sh: $file needs $name, which is not to be found here" >&2; return 1; }
      [ -e "$folder/lib/$name" ] || cp -L "$path" "$folder/lib/$name"
    done < <(ldd "$file" | sed 's/^[[:space:]]*//')
  done
}

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
pack "$staging" "${files[@]}"
cat >"$staging/with_libraries.sh" <<'RUN'
#!/usr/bin/env bash
# with_libraries.sh PROGRAM ARGUMENT...: runs a program of this bundle with the machine's LibTorch and CUDA, which are
# those of its Python, or lie in the folders that MANTA_LIBRARIES names (a:b:...).
here=$(cd "$(dirname "$0")" && pwd)
libraries=${MANTA_LIBRARIES:-}
if [ -z "$libraries" ]; then
  packages=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))') ||
    { echo "with_libraries.sh: this machine's Python has no torch: name the libraries' folders in MANTA_LIBRARIES" >&2; exit 69; }
  libraries=$packages/torch/lib
  for folder in "$packages"/nvidia/*/lib; do libraries=$libraries:$folder; done
fi
export LD_LIBRARY_PATH=$here/lib:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
program=$1; shift
exec "$([ -x "$here/bin/$program" ] && echo "$here/bin/$program" || echo "$program")" "$@"
RUN
chmod +x "$staging/with_libraries.sh"
mkdir -p "$staging/goldens"
goldens=$shared/goldens/models
[ -d "$goldens" ] || goldens=tests/golden/models
cp -r "$goldens" "$staging/goldens/models"
cp -r configs assets "$staging/"
rm -rf .bundle; mkdir .bundle
tar -C "$staging" -czf .bundle/files.tar.gz .
cp tests/gpu/run.sh .bundle/run.sh
echo ".bundle: $(du -sm .bundle | cut -f1) MiB; programs: $(ls "$staging/bin" | tr '\n' ' ')"
