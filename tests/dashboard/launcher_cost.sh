#!/bin/sh
# launcher_cost.sh LOCKSTEP RANK [RANKS [SECONDS]]: measures what share of a core the launcher needs for the dashboard, while a
# viewer is connected and the ranks take 20 steps per second each. The ranks do not communicate, so that many fit on a
# small machine; their records are those of a training with eight buckets.
set -eu
lockstep=$1
rank=$2
ranks=${3:-64}
seconds=${4:-20}
log=$(mktemp)
"$lockstep" run --nproc-per-node "$ranks" --dashboard=127.0.0.1:0 "$rank" alone=1 step_ms=46 2>"$log" &
launcher=$!
viewer=
trap 'kill $launcher $viewer 2>/dev/null || true; rm -f "$log"' EXIT
while ! grep -q dashboard: "$log"; do sleep 0.1; done
url=$(sed -n 's/.*dashboard: //p' "$log")
curl -sN "${url}events" >/dev/null &
viewer=$!
sleep 5
ticks() { sed 's/.*) //' /proc/$launcher/stat | awk '{print $12 + $13}'; }
before=$(ticks)
steps_before=$(curl -s "${url}metrics" | awk '/^lockstep_rank_steps_total/ {sum += $NF} END {print sum}')
sleep "$seconds"
after=$(ticks)
steps_after=$(curl -s "${url}metrics" | awk '/^lockstep_rank_steps_total/ {sum += $NF} END {print sum}')
awk -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" -v seconds="$seconds" -v ranks="$ranks" \
  -v steps=$((steps_after - steps_before)) 'BEGIN {
    printf "%d ranks, %.1f steps/s each: the launcher used %.2f %% of a core\n", ranks, steps / seconds / ranks, 100 * ticks / hz / seconds }'
