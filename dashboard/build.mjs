// Bundles src/ into page.html: one file with its script and its style inside, which needs nothing from elsewhere.
//   node build.mjs [OUTPUT]
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const output = process.argv[2] ?? here("page.html");

const bundle = await build({
  entryPoints: [here("src/main.tsx")],
  bundle: true,
  minify: true,
  write: false,
  outdir: "out",
  format: "iife",
  target: ["chrome109", "firefox115", "safari16"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "ascii",
  legalComments: "none",
  logLevel: "warning",
});
const text = (ending) => bundle.outputFiles.find((file) => file.path.endsWith(ending)).text.trim();
// The end tag of the element must not appear in its content.
const script = text(".js").replaceAll("</script", "<\\/script");
const style = text(".css");
const licenses = "preact (MIT, Copyright (c) 2015-present Jason Miller), uPlot (MIT, Copyright (c) 2022 Leon Sorokin)";
const page = readFileSync(here("src/page.template.html"), "utf8")
  .replace("/*style*/", () => style)
  .replace("/*script*/", () => script)
  .replace("/*licenses*/", () => licenses);
writeFileSync(output, page);
