#!/usr/bin/env bash
# Checks and measures the attention kernels on this machine's GPU, in under 6 minutes; results/ fills as it goes. Needs a
# C++ compiler, or a driver that was built before; Python with PyTorch for the other half of the table, else it is left out.
cd "$(dirname "$0")" || exit 1
mkdir -p results
[ -x driver ] || "${CXX:-g++}" -std=c++20 -O2 -I. driver.cpp -ldl -o driver || exit 1
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader > results/gpu.txt 2>&1
status=0
timeout 60 ./driver ./libsinkflex-cuda.so check cases.bin | tee results/check.tap || status=1
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck; do
    timeout 40 compute-sanitizer --tool "$tool" --error-exitcode 3 ./driver ./libsinkflex-cuda.so check cases.bin 4 \
      > "results/$tool.txt" 2>&1 || echo "$tool: ended with $?" | tee -a results/check.tap
  done
fi
timeout 80 ./driver ./libsinkflex-cuda.so bench 32768 | tee results/ours.jsonl
timeout 110 python3 torch_table.py | tee results/torch.jsonl
exit $status
