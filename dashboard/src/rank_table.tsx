// One line for each rank: what it does now, and what it uses.
import { bytes, duration } from "./format";
import type { Rank, State } from "./state";

const SLOW_SECONDS = 2;

function condition(rank: Rank): string {
  if (rank.condition === "failed") return rank.end || "failed";
  if (rank.condition === "running" && rank.failure) return "has failed";
  return rank.condition;
}

function mark(rank: Rank, late: boolean): string {
  if (rank.condition === "failed" || rank.failure) return "failed";
  if (rank.condition === "finished") return "finished";
  if (rank.condition === "starting") return "starting";
  return late ? "late" : "running";
}

// What the rank does, in words, and for how long.
function Activity({ rank }: { rank: Rank }) {
  if (rank.condition === "finished" || rank.condition === "failed") return <span class="faint">–</span>;
  const parts: [string, number][] = [];
  if (rank.phase) parts.push([rank.phase, rank.phase_age]);
  if (rank.operation) parts.push([rank.operation, rank.operation_age]);
  if (parts.length === 0) return <span class="faint">{rank.condition === "starting" ? "not joined yet" : "between phases"}</span>;
  return (
    <>
      {parts.map(([text, age]) => (
        <span class="activity" key={text}>
          {text} <span class={age >= SLOW_SECONDS ? "age slow" : "age"}>{age >= 0.1 ? duration(age) : ""}</span>
        </span>
      ))}
    </>
  );
}

export function RankTable({ state }: { state: State }) {
  const late = state.straggler?.rank;
  const hosts = new Set(state.ranks.map((rank) => rank.host));
  return (
    <section class="card wide" id="ranks" aria-labelledby="ranks-title">
      <h2 id="ranks-title">Ranks</h2>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby="ranks-title">
        <table class="ranks">
          <thead>
            <tr>
              <th scope="col">Rank</th>
              <th scope="col">State</th>
              <th scope="col" class="right">
                Step
              </th>
              <th scope="col">Now</th>
              <th scope="col" class="right minor">
                Cores
              </th>
              <th scope="col" class="right minor">
                Memory
              </th>
              <th scope="col" class="right minor">
                Threads
              </th>
              <th scope="col" class="right minor">
                Process
              </th>
            </tr>
          </thead>
          <tbody>
            {state.ranks.map((rank) => {
              const kind = mark(rank, rank.rank === late && rank.rank >= 0);
              return (
                <tr key={rank.local_rank} class={kind} title={rank.failure || undefined}>
                  <th scope="row">
                    {rank.rank >= 0 ? rank.rank : "–"}
                    {rank.name.startsWith("worker") && <small>{rank.name}</small>}
                  </th>
                  <td>
                    <span class={`dot ${kind}`} aria-hidden="true" />
                    {kind === "late" ? "straggler" : condition(rank)}
                    {rank.starts > 1 && <small>start {rank.starts}</small>}
                  </td>
                  <td class="right number">{rank.step > 0 ? rank.step : "–"}</td>
                  <td class="now">
                    <Activity rank={rank} />
                  </td>
                  <td class="right number minor">{rank.usage ? rank.usage.cores.toFixed(2) : "–"}</td>
                  <td class="right number minor">{rank.usage ? bytes(rank.usage.memory) : "–"}</td>
                  <td class="right number minor">{rank.usage ? rank.usage.threads : "–"}</td>
                  <td class="right number minor">
                    {rank.pid}
                    {hosts.size > 1 && <small>{rank.host}</small>}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
