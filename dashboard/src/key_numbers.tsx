// The numbers that one reads first.
import { duration, milliseconds, number } from "./format";
import type { State } from "./state";

function Tile({ name, value, note, alarm }: { name: string; value: string; note?: string; alarm?: boolean }) {
  return (
    <div class={alarm ? "tile alarm" : "tile"}>
      <dt>{name}</dt>
      <dd>
        {value}
        {note && <small>{note}</small>}
      </dd>
    </div>
  );
}

export function KeyNumbers({ state }: { state: State }) {
  const alive = state.ranks.filter((rank) => rank.condition === "running" || rank.condition === "starting").length;
  const finished = state.ranks.filter((rank) => rank.condition === "finished").length;
  const step = Math.max(0, ...state.ranks.map((rank) => rank.step));
  const missing = alive + finished < state.job.ranks;
  const share = state.step_ms > 0 ? (100 * state.communication_ms) / state.step_ms : 0;
  return (
    <dl class="tiles" aria-label="Key numbers">
      <Tile
        name="Ranks alive"
        value={`${alive} of ${state.job.ranks}`}
        note={state.job.world_size > state.job.ranks ? `world ${state.job.world_size}` : finished > 0 ? `${finished} finished` : ""}
        alarm={missing && !state.job.over}
      />
      <Tile name="Step" value={step > 0 ? number(step) : "–"} />
      <Tile name="Speed" value={state.steps_per_second > 0 ? `${state.steps_per_second.toPrecision(3)}` : "–"} note="steps/s" />
      <Tile name="Step time" value={state.step_ms > 0 ? milliseconds(state.step_ms) : "–"} note="median" />
      <Tile
        name="Network wait"
        value={state.compared_steps > 0 ? milliseconds(state.communication_ms) : "–"}
        note={state.compared_steps > 0 ? `${share.toFixed(0)} % of a step` : ""}
      />
      {state.seconds_left != null && <Tile name="Time left" value={duration(state.seconds_left)} />}
      <Tile name="Lost ranks" value={number(state.job.failures)} alarm={state.job.failures > 0} />
    </dl>
  );
}
