// Where the time of a step goes on each rank, beside the median of all ranks.
import { median, milliseconds } from "./format";
import type { Split, State } from "./state";

// The parts that are drawn, in the order of a step. -1: the exposed wait; -2: the rest.
const EXPOSED = -1;
const REST = -2;
const ORDER = [0, 1, 2, EXPOSED, 3, 4, 5, 10, 6, REST];

function parts(split: Split): Map<number, number> {
  const result = new Map<number, number>();
  let known = split.exposed;
  for (const kind of ORDER) {
    if (kind < 0) continue;
    const own = split.own[kind] ?? 0;
    known += own;
    result.set(kind, own);
  }
  result.set(EXPOSED, split.exposed);
  result.set(REST, Math.max(0, split.total - known));
  return result;
}

function partName(kind: number, phases: string[]): string {
  if (kind === EXPOSED) return "exposed wait";
  if (kind === REST) return "other waits";
  if (kind === 6) return "between phases";
  return phases[kind] ?? "";
}
const partClass = (kind: number) => (kind === EXPOSED ? "part-wait" : kind === REST ? "part-rest" : `part-${kind}`);

// By how much, and in which part, a rank computes longer than the median.
function excess(own: Map<number, number>, middle: Map<number, number>, phases: string[]) {
  let best = { kind: 0, by: 0 };
  for (const [kind, value] of own) {
    if (kind < 0) continue;
    const by = value - (middle.get(kind) ?? 0);
    if (by > best.by) best = { kind, by };
  }
  return { ...best, name: partName(best.kind, phases) };
}

function Bar({ values, scale, phases, label }: { values: Map<number, number>; scale: number; phases: string[]; label: string }) {
  const shown = ORDER.filter((kind) => (values.get(kind) ?? 0) > 0.002 * scale);
  const text = shown.map((kind) => `${partName(kind, phases)} ${milliseconds(values.get(kind) ?? 0)}`).join(", ");
  return (
    <div class="bar split" role="img" aria-label={`${label}: ${text}`}>
      {shown.map((kind) => (
        <span
          key={kind}
          class={partClass(kind)}
          style={{ width: `${(100 * (values.get(kind) ?? 0)) / scale}%` }}
          title={`${partName(kind, phases)}: ${milliseconds(values.get(kind) ?? 0)}`}
        />
      ))}
    </div>
  );
}

export function StepSplit({ state }: { state: State }) {
  const ranks = state.ranks.filter((rank) => rank.split !== null && rank.condition === "running");
  if (ranks.length === 0) return null;
  const all = ranks.map((rank) => parts(rank.split!));
  const middle = new Map(ORDER.map((kind) => [kind, median(all.map((one) => one.get(kind) ?? 0))]));
  const scale = Math.max(1e-6, ...all.map((one) => [...one.values()].reduce((a, b) => a + b, 0)));
  const seen = ORDER.filter((kind) => all.some((one) => (one.get(kind) ?? 0) > 0.002 * scale));
  return (
    <section class="card" aria-labelledby="split-title">
      <h2 id="split-title">Where a step goes</h2>
      <p class="hint">Mean of the last steps. All ranks take the same time; the late one computes while the others wait.</p>
      <ul class="legend">
        {seen.map((kind) => (
          <li key={kind}>
            <span class={`swatch ${partClass(kind)}`} aria-hidden="true" />
            {partName(kind, state.phases)}
          </li>
        ))}
      </ul>
      <div class="scroll splits" tabIndex={0} role="region" aria-labelledby="split-title">
        <div class="split-row median">
          <span>median</span>
          <Bar values={middle} scale={scale} phases={state.phases} label="Median of all ranks" />
          <span class="excess">{milliseconds(scale)}</span>
        </div>
        {ranks.map((rank, i) => {
          const late = excess(all[i]!, middle, state.phases);
          const notable = late.by > 0.05 * scale;
          return (
            <div class="split-row" key={rank.local_rank}>
              <span>{rank.rank}</span>
              <Bar values={all[i]!} scale={scale} phases={state.phases} label={`Rank ${rank.rank}`} />
              <span class={notable ? "excess notable" : "excess"}>
                {notable ? `+${milliseconds(late.by)} ${late.name}` : ""}
              </span>
            </div>
          );
        })}
      </div>
    </section>
  );
}
