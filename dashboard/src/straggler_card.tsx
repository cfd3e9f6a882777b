// The rank that the others wait for, and what that costs.
import { milliseconds } from "./format";
import type { State, Straggler } from "./state";

export function StragglerCard({ straggler, state }: { straggler: Straggler; state: State }) {
  const share = state.step_ms > 0 ? Math.min(1, straggler.cost / state.step_ms) : 0;
  const phase = state.phases[straggler.phase] ?? "";
  const where = straggler.phase === 2 && straggler.bucket >= 0 ? `${phase}, bucket ${straggler.bucket}` : phase;
  return (
    <section class="card straggler wide" aria-labelledby="straggler-title">
      <h2 id="straggler-title">
        Rank {straggler.rank} is the straggler: {where}
      </h2>
      <div class="cost">
        <div class="figure">
          <strong>{straggler.speedup.toPrecision(2)}×</strong>
          <span>as fast without it</span>
        </div>
        <div class="cost-bar">
          <div class="bar" role="img" aria-label={`${milliseconds(straggler.cost)} of each ${milliseconds(state.step_ms)} step`}>
            <span class="bar-cost" style={{ width: `${100 * share}%` }} />
          </div>
          <p>{straggler.text}</p>
        </div>
      </div>
    </section>
  );
}
