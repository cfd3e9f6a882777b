import { render } from "preact";
import { App } from "./app";
import { follow } from "./connection";
import "uplot/dist/uPlot.min.css";
import "./style.css";

const root = document.getElementById("app")!;
render(<App view={{ state: null, connected: false, lost: Date.now() }} />, root);
follow((view) => render(<App view={view} />, root));
