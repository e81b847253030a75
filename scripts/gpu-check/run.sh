#!/usr/bin/env bash
# Checks and measures the attention kernels on this machine's GPU, in under 6 minutes; results/ fills as it goes. Needs a
# C++ compiler, or a driver that was built before; Python with PyTorch for the other half of the table, else it is left out.
# `./run.sh tiny`: the same with next to nothing to do, PyTorch on the CPU; for trying the folder with an emulated library.
cd "$(dirname "$0")" || exit 1
cases=1000000 bench=32768 step=8192 vocabulary=201088
[ "$1" = tiny ] && cases=2 bench=64 step=16 vocabulary=128
mkdir -p results
[ -x driver ] || "${CXX:-g++}" -std=c++20 -O2 -I. driver.cpp -ldl -o driver || exit 1
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader > results/gpu.txt 2>&1
status=0
drive() { timeout "$1" ./driver ./libsinkflex-cuda.so "${@:2}"; }
drive 60 check cases.bin "$cases" | tee results/check.tap
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck; do
    timeout 30 compute-sanitizer --tool "$tool" --error-exitcode 3 ./driver ./libsinkflex-cuda.so check cases.bin 4 \
      > "results/$tool.txt" 2>&1 || echo "$tool: ended with $?" | tee -a results/check.tap
  done
fi
drive 70 bench "$bench" | tee results/ours.jsonl
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
drive 40 step "$step" "$vocabulary" | tee -a results/ours.jsonl
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
timeout 110 python3 torch_table.py "$@" | tee results/torch.jsonl
python3 summary.py results/ours.jsonl results/torch.jsonl | tee results/summary.txt
exit $status
