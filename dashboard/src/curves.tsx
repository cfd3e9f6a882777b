// Curves over time or steps, drawn by uPlot.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { number } from "./format";
import type { Curve } from "./state";

const HEIGHT = 150;

function colours() {
  const style = getComputedStyle(document.documentElement);
  return { ink: style.getPropertyValue("--muted"), grid: style.getPropertyValue("--line"), curve: style.getPropertyValue("--curve") };
}

// With seconds only if the marks are closer than a minute.
function moment(tick: number, ticks: number[]): string {
  const close = ticks.length > 1 && ticks[1]! - ticks[0]! < 60;
  return new Date(tick * 1000).toLocaleTimeString([], {
    hour12: false,
    hour: "2-digit",
    minute: "2-digit",
    second: close ? "2-digit" : undefined,
  });
}

function options(curve: Curve, width: number): uPlot.Options {
  const { ink, grid, curve: stroke } = colours();
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false } },
    scales: { x: { time: curve.x === "time" } },
    axes: [
      { ...axis, space: 70, size: 26, values: (_, ticks) => ticks.map((tick) => (curve.x === "time" ? moment(tick, ticks) : number(tick))) },
      { ...axis, size: 52, space: 34, values: (_, ticks) => ticks.map((tick) => number(tick)) },
    ],
    series: [{}, { stroke, width: 1.6, points: { show: false }, fill: `color-mix(in srgb, ${stroke} 12%, transparent)` }],
  };
}

const columns = (curve: Curve): uPlot.AlignedData => [curve.points.map((p) => p[0]), curve.points.map((p) => p[1])];

function Plot({ curve }: { curve: Curve }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(curve);
  latest.current = curve;
  useEffect(() => {
    const element = box.current!;
    const create = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(latest.current, Math.max(120, element.clientWidth)), columns(latest.current), element);
    };
    create();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(120, element.clientWidth), height: HEIGHT }));
    resized.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", create);
    return () => {
      resized.disconnect();
      scheme.removeEventListener("change", create);
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => plot.current?.setData(columns(curve)), [curve.points]);
  const values = curve.points.map((point) => point[1]).filter((value): value is number => value !== null);
  const now = values.at(-1);
  const label = `${curve.name}: now ${number(now)}, lowest ${number(Math.min(...values))}, highest ${number(Math.max(...values))}`;
  return (
    <figure class="curve">
      <figcaption>
        <span>{curve.name}</span>
        <strong>{number(now)}</strong>
      </figcaption>
      <div ref={box} role="img" aria-label={label} />
    </figure>
  );
}

export function Curves({ curves }: { curves: Curve[] }) {
  const shown = curves.filter((curve) => curve.points.length > 1);
  if (shown.length === 0) return null;
  // The loss first, then what else the program logs, then the speed.
  const place = (curve: Curve) => (curve.x === "time" ? 2 : /loss/i.test(curve.name) ? 0 : 1);
  const ordered = [...shown].sort((a, b) => place(a) - place(b));
  return (
    <section class="card wide" aria-labelledby="curves-title">
      <h2 id="curves-title">Curves</h2>
      <div class="curves">
        {ordered.map((curve) => (
          <Plot key={curve.name} curve={curve} />
        ))}
      </div>
    </section>
  );
}
