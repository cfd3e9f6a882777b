// The page: the job in one sentence, then the ranks, where the time goes, and what happened.
import { useEffect, useRef } from "preact/hooks";
import type { View } from "./connection";
import { Curves } from "./curves";
import { HeatMap } from "./heat_map";
import { KeyNumbers } from "./key_numbers";
import { RankTable } from "./rank_table";
import type { Level, State } from "./state";
import { StepSplit } from "./step_split";
import { StragglerCard } from "./straggler_card";
import { TimeAxis } from "./time_axis";
import { duration } from "./format";

const LEVEL_NAMES: Record<Level, string> = { good: "Running", attention: "Attention", bad: "Trouble", over: "Finished" };
const LEVEL_COLOURS: Record<Level, string> = { good: "#1f8a4c", attention: "#d98200", bad: "#cc2f2f", over: "#4a6fd0" };

// The tab shows the state, too.
function useTab(state: State | null, connected: boolean) {
  const level = state?.level;
  const title = state
    ? `${LEVEL_NAMES[state.level]}${state.steps_per_second > 0 ? ` · ${state.steps_per_second.toPrecision(3)} steps/s` : ""} · Lockstep`
    : "Lockstep";
  useEffect(() => {
    document.title = connected || state?.job.over ? title : `(no connection) ${title}`;
  }, [title, connected]);
  useEffect(() => {
    if (!level) return;
    const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]")!;
    const svg = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><circle cx='8' cy='8' r='7' fill='${LEVEL_COLOURS[level]}'/></svg>`;
    icon.href = "data:image/svg+xml," + encodeURIComponent(svg);
  }, [level]);
}

// Screen readers hear changes of the state, not every new step.
function Announcement({ state }: { state: State }) {
  const spoken = useRef({ level: "", text: "" });
  const late = state.straggler ? ` Rank ${state.straggler.rank} is the straggler.` : "";
  const key = state.level + late;
  if (spoken.current.level !== key) spoken.current = { level: key, text: state.sentence };
  return (
    <div class="unseen" role="status" aria-live="polite">
      {spoken.current.text}
    </div>
  );
}

function Header({ view, state }: { view: View; state: State }) {
  const { job } = state;
  const place = job.nodes > 1 ? `${job.host}, node ${job.node} of ${job.nodes}` : job.host;
  return (
    <header>
      <div class="origin">
        <strong>Lockstep</strong>
        <code title={job.command}>{job.command}</code>
        <span>
          {place} · pid {job.launcher} · since {duration(Math.max(0, state.now - job.started))}
        </span>
      </div>
      <div class={`banner ${view.connected || job.over ? state.level : "lost"}`}>
        <span class="level">{LEVEL_NAMES[state.level]}</span>
        <h1 id="sentence">{state.sentence}</h1>
        {state.waiting.length > 0 && (
          <ul class="waiting">
            {state.waiting.slice(0, 4).map((sentence) => (
              <li key={sentence}>{sentence}</li>
            ))}
          </ul>
        )}
        {!view.connected && !job.over && (
          <p class="lost-note" role="alert">
            No connection to the launcher for {duration((Date.now() - view.lost) / 1000)}: it may have ended. This is the
            last state.
          </p>
        )}
      </div>
      <Announcement state={state} />
    </header>
  );
}

export function App({ view }: { view: View }) {
  const { state } = view;
  useTab(state, view.connected);
  if (state === null) return <main class="empty">Waiting for the launcher…</main>;
  return (
    <>
      <a class="skip" href="#ranks">
        Skip to the ranks
      </a>
      <Header view={view} state={state} />
      <main>
        <KeyNumbers state={state} />
        {state.straggler && !state.job.over && <StragglerCard straggler={state.straggler} state={state} />}
        <RankTable state={state} />
        <Curves curves={state.curves} />
        <StepSplit state={state} />
        <HeatMap state={state} />
        <TimeAxis state={state} />
      </main>
      <footer>
        <span>
          The ranks of this launcher, as they recorded it. <a href="/metrics">/metrics</a> has it for Prometheus,{" "}
          <a href="/state">/state</a> as JSON.
        </span>
      </footer>
    </>
  );
}
