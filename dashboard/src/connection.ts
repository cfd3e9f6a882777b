// The live connection to the launcher.
import { merge, type State } from "./state";

const SILENT_MS = 4000;

export interface View {
  state: State | null;
  connected: boolean;
  lost: number; // Date.now() at the last message, while not connected
}

// Calls `show` with each new view. The browser connects again by itself until the job is over.
export function follow(show: (view: View) => void): void {
  let state: State | null = null;
  let last = Date.now();
  let connected = false;
  const source = new EventSource("/events");
  const report = () => show({ state, connected, lost: last });
  source.onmessage = (message) => {
    state = merge(state, JSON.parse(message.data) as State);
    last = Date.now();
    connected = true;
    if (state.job.over) source.close();
    report();
  };
  source.onerror = () => {
    if (state?.job.over) return;
    connected = false;
    report();
    // After some errors a browser gives up.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(show), 2000);
  };
  setInterval(() => {
    if (state?.job.over || !connected || Date.now() - last < SILENT_MS) return;
    connected = false;
    report();
  }, 1000);
}
