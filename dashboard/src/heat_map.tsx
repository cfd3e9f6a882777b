// How long each rank computes before each bucket of gradients is complete, compared with the median rank.
import { useState } from "preact/hooks";
import { median, milliseconds } from "./format";
import type { State } from "./state";

interface Cell {
  rank: number;
  bucket: number;
}

export function HeatMap({ state }: { state: State }) {
  const [chosen, choose] = useState<Cell | null>(null);
  const ranks = state.ranks.filter((rank) => rank.condition === "running" && (rank.split?.buckets.length ?? 0) > 0);
  const buckets = Math.max(0, ...ranks.map((rank) => rank.split!.buckets.length));
  if (buckets === 0) return null;
  const value = (row: number, bucket: number) => ranks[row]?.split!.buckets[bucket] ?? 0;
  const columns = Array.from({ length: buckets }, (_, bucket) => bucket);
  const middle = columns.map((bucket) => median(ranks.map((_, row) => value(row, bucket))));
  // One colour scale for all: a tenth of a step later than the median is full.
  const full = Math.max(0.1 * (state.step_ms || 1), 1e-6);
  const heat = (row: number, bucket: number) => Math.max(-1, Math.min(1, (value(row, bucket) - middle[bucket]!) / full));
  const text = (row: number, bucket: number) => {
    const own = value(row, bucket);
    const by = own - middle[bucket]!;
    return `rank ${ranks[row]!.rank}, bucket ${bucket}: ${milliseconds(own)}, ${milliseconds(Math.abs(by))} ${by >= 0 ? "more" : "less"} than the median`;
  };
  const cell = chosen && ranks[chosen.rank] && chosen.bucket < buckets ? chosen : null;
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const from = cell ?? { rank: 0, bucket: 0 };
    choose({
      rank: Math.max(0, Math.min(ranks.length - 1, from.rank + step[0])),
      bucket: Math.max(0, Math.min(buckets - 1, from.bucket + step[1])),
    });
  };
  return (
    <section class="card" aria-labelledby="heat-title">
      <h2 id="heat-title">Backward, bucket by bucket</h2>
      <p class="hint">How long each rank computes before a bucket of gradients is complete, compared with the median rank.</p>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby="heat-title" onKeyDown={move}>
        <table class="heat">
          <thead>
            <tr>
              <td />
              {columns.map((bucket) => (
                <th scope="col" key={bucket}>
                  <span class="unseen">bucket </span>
                  {bucket}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {ranks.map((rank, row) => (
              <tr key={rank.local_rank}>
                <th scope="row">
                  <span class="unseen">rank </span>
                  {rank.rank}
                </th>
                {columns.map((bucket) => {
                  const warmth = heat(row, bucket);
                  const active = cell?.rank === row && cell.bucket === bucket;
                  return (
                    <td
                      key={bucket}
                      class={active ? "active" : ""}
                      style={{ "--heat": Math.abs(warmth).toFixed(2), "--tone": warmth >= 0 ? "var(--hot)" : "var(--cold)" }}
                      onMouseEnter={() => choose({ rank: row, bucket })}
                    >
                      <span class="unseen">{milliseconds(value(row, bucket))}</span>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="reading" aria-live="polite">
        {cell ? text(cell.rank, cell.bucket) : "Point at a cell, or use the arrow keys."}
      </p>
      <p class="scale" aria-hidden="true">
        <span>{milliseconds(full)} less</span>
        <span class="ramp" />
        <span>{milliseconds(full)} more</span>
      </p>
    </section>
  );
}
