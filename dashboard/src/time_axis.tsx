// What happened, on a time axis and in words.
import { useState } from "preact/hooks";
import { clock } from "./format";
import type { EventKind, JobEvent, State } from "./state";

const NAMES: Record<EventKind, string> = {
  message: "message",
  failure: "failure",
  generation: "generation",
  snapshot: "snapshot",
  start: "start",
  end: "end of the job",
};
// One line of the axis for each of these.
const LANES: EventKind[] = ["failure", "generation", "snapshot", "start"];
const MOST_LISTED = 60;

const firstLine = (text: string) => text.split("\n", 1)[0] ?? "";

function Entry({ event, chosen }: { event: JobEvent; chosen: boolean }) {
  const lines = event.text.split("\n");
  return (
    <li class={chosen ? `entry ${event.kind} chosen` : `entry ${event.kind}`}>
      <time dateTime={new Date(event.time * 1000).toISOString()}>{clock(event.time)}</time>
      <span class={`tag ${event.kind}`}>{NAMES[event.kind]}</span>
      {lines.length > 1 ? (
        <details>
          <summary>{lines[0]}</summary>
          <pre>{lines.slice(1).join("\n")}</pre>
        </details>
      ) : (
        <span>{event.text}</span>
      )}
    </li>
  );
}

export function TimeAxis({ state }: { state: State }) {
  const [chosen, choose] = useState<JobEvent | null>(null);
  const { job, now } = state;
  const events = [...state.events].sort((a, b) => a.time - b.time);
  const begin = job.started;
  const end = Math.max(now, begin + 1);
  const place = (time: number) => `${Math.max(0, Math.min(100, (100 * (time - begin)) / (end - begin)))}%`;
  const lanes = LANES.filter((kind) => events.some((event) => event.kind === kind));
  const listed = events.slice(-MOST_LISTED).reverse();
  return (
    <section class="card wide" aria-labelledby="events-title">
      <h2 id="events-title">What happened</h2>
      {lanes.length > 0 && (
        <div class="axis">
          {lanes.map((kind) => (
            <div class="lane" key={kind}>
              <span class="lane-name">{NAMES[kind]}s</span>
              <div class="track">
                {events
                  .filter((event) => event.kind === kind)
                  .map((event, i) => (
                    <button
                      key={i}
                      type="button"
                      class={`pin ${kind}`}
                      style={{ left: place(event.time) }}
                      title={`${clock(event.time)} ${firstLine(event.text)}`}
                      aria-label={`${NAMES[kind]} at ${clock(event.time)}: ${firstLine(event.text)}`}
                      onClick={() => choose(event)}
                      onFocus={() => choose(event)}
                    />
                  ))}
              </div>
            </div>
          ))}
          <div class="lane ends" aria-hidden="true">
            <span class="lane-name" />
            <div class="track">
              <span>{clock(begin)}</span>
              <span>{clock(end)}</span>
            </div>
          </div>
        </div>
      )}
      {listed.length === 0 ? (
        <p class="hint">Nothing so far: no failure, no restart, no snapshot.</p>
      ) : (
        <ol class="entries scroll" tabIndex={0} aria-labelledby="events-title">
          {listed.map((event, i) => (
            <Entry key={events.length - i} event={event} chosen={event === chosen} />
          ))}
        </ol>
      )}
    </section>
  );
}
