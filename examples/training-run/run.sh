#!/usr/bin/env bash
# The training with its faults, its watcher and its logs: run.sh OUT. Takes about two minutes on two cores.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
export HOLDFAST_FAULTS=${HOLDFAST_FAULTS-kill:3:85,kill:0:165,hang:1:235,slow:2:4}
export TORCH_FR_BUFFER_SIZE=2000   # each rank keeps its last collectives, on gloo as on NCCL
export OMP_NUM_THREADS=1

holdfast runs watch "$out/events" --poll 1s --set hang_s=8s --set silence_s=10s --act --on-alarm "$here/on-alarm.sh" \
  > "$out/alarms.txt" 2> "$out/watch.txt" &

# What a scheduler that requeues does: submit, wait for a turn, start; again until it succeeds.
for attempt in 0 1 2 3 4 5; do
  submitted=$(date +%s.%N)
  sleep 1
  torchrun --standalone --nproc-per-node 4 --log-dir "$out/logs/$attempt" --redirects 3 \
    "${TRAIN:-$here/train.py}" "$out" --submitted-s "$submitted" 2>> "$out/torchrun.txt" && break
done
wait
