// What the launcher sends (src/dashboard/state_json.cpp), and how updates add to what the page has.

export type Level = "good" | "attention" | "bad" | "over";

export interface Split {
  total: number; // milliseconds, as all of these
  exposed: number;
  own: number[]; // by phase
  buckets: number[];
}

export interface Rank {
  name: string;
  rank: number;
  local_rank: number;
  host: string;
  pid: number;
  starts: number;
  condition: "starting" | "running" | "finished" | "failed";
  end: string;
  generation: number;
  step: number;
  step_age: number;
  phase: string;
  phase_age: number;
  operation: string;
  operation_age: number;
  failure: string;
  split: Split | null;
  usage: { cores: number; memory: number; threads: number } | null;
}

export interface Straggler {
  rank: number;
  host: string;
  phase: number;
  bucket: number;
  last_fraction: number;
  cost: number;
  excess: number;
  speedup: number;
  text: string;
}

export type Point = [number, number | null];
export interface Curve {
  name: string;
  x: "time" | "step";
  reset: boolean;
  points: Point[];
}

export type EventKind = "message" | "failure" | "generation" | "snapshot" | "start" | "end";
export interface JobEvent {
  time: number;
  kind: EventKind;
  text: string;
}

export interface State {
  version: number;
  tick: number;
  since: number;
  now: number;
  job: {
    command: string;
    run_id: string;
    host: string;
    launcher: number;
    elastic: boolean;
    ranks: number;
    started: number;
    node: number;
    nodes: number;
    world_size: number;
    round: number;
    over: boolean;
    failures: number;
  };
  sentence: string;
  level: Level;
  waiting: string[];
  steps_per_second: number;
  compared_steps: number;
  step_ms: number;
  communication_ms: number;
  seconds_left?: number | null;
  straggler: Straggler | null;
  phases: string[];
  ranks: Rank[];
  curves: Curve[];
  events: JobEvent[];
}

const MOST_EVENTS = 500;

// Adds an update to the state that it continues.
export function merge(before: State | null, update: State): State {
  if (before === null || update.since === 0) return update;
  const curves = update.curves.map((curve) => {
    const known = before.curves.find((one) => one.name === curve.name);
    if (known === undefined || curve.reset) return curve;
    // The same array as long as nothing is added: a curve is only drawn again if it has changed.
    return curve.points.length === 0 ? known : { ...curve, points: known.points.concat(curve.points) };
  });
  const events = before.events.concat(update.events).slice(-MOST_EVENTS);
  return { ...update, curves, events };
}
