#!/usr/bin/env bash
# What `holdfast runs watch --act --on-alarm` runs, once per alarm: it ends a hang by killing the newest
# process of a missing rank; torchrun then ends the others, and the training is submitted again.
set -euo pipefail
[ "$HOLDFAST_ALARM" = hang ] || exit 0
rank=$(holdfast runs hang "$HOLDFAST_FOLDER" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["missing_ranks"][0])')
newest=$(find "$HOLDFAST_FOLDER" -name "$(printf 'rank-%05d-*.jsonl' "$rank")" | sort | tail -1)
pid=${newest##*-}
kill -KILL "${pid%.jsonl}"
