// Opens the dashboard of real jobs of four ranks in Chromium, and checks what a user sees.
//   CHROMIUM=... PROFILE=FOLDER node browser_test.mjs LOCKSTEP RANK [SCREENSHOT_FOLDER]
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chromium } from "playwright-core";

const [lockstep, rank, screenshots] = process.argv.slice(2);
const PATIENCE = 60_000;

class Job {
  constructor(options, rankArguments) {
    this.errors = "";
    this.process = spawn(lockstep, ["run", "--dashboard=127.0.0.1:0", ...options, rank, ...rankArguments], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.process.stderr.on("data", (data) => (this.errors += data));
    this.ended = new Promise((resolve) => this.process.on("exit", (code, signal) => resolve(code ?? signal)));
  }
  async url() {
    const deadline = Date.now() + PATIENCE;
    while (Date.now() < deadline) {
      const found = /dashboard: (http:\S+)/.exec(this.errors);
      if (found) return found[1];
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error("the launcher printed no address: " + this.errors);
  }
  async stop() {
    this.process.kill("SIGINT");
    await this.ended;
  }
}

// What must never appear: errors, refused content, requests to other places.
function watch(page, url, problems) {
  page.on("pageerror", (error) => problems.push("error: " + error));
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") problems.push("console: " + message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) problems.push("request: " + request.url());
  });
}

const browser = await chromium.launchPersistentContext(process.env.PROFILE, {
  executablePath: process.env.CHROMIUM,
  headless: true,
  viewport: { width: 1440, height: 1000 },
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});

async function open(job, options = {}) {
  const problems = [];
  const url = await job.url();
  const page = await browser.newPage();
  if (options.viewport) await page.setViewportSize(options.viewport);
  if (options.colorScheme) await page.emulateMedia({ colorScheme: options.colorScheme });
  watch(page, url, problems);
  await page.goto(url);
  return { page, problems };
}
const shot = async (page, name) => {
  if (screenshots) await page.screenshot({ path: `${screenshots}/${name}.png`, fullPage: true });
};
const sentence = (page) => page.locator("#sentence");

async function test(name, body) {
  const begin = Date.now();
  await body();
  console.log(`ok: ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
}

try {
  await test("a straggler is named, with its bucket and its cost", async () => {
    const job = new Job(["--nproc-per-node", "4"], ["step_ms=40", "slow=2", "slow_ms=45", "snapshots=60", "steps=2000"]);
    const { page, problems } = await open(job);
    await page.getByRole("heading", { name: /Rank 2 is the straggler: backward, bucket 5/ }).waitFor({ timeout: PATIENCE });
    assert.match(await sentence(page).innerText(), /rank 2 holds it up \(backward\)/);
    assert.match(await page.title(), /^Attention/);
    assert.equal(await page.locator(".ranks tbody tr").count(), 4);
    assert.equal(await page.locator(".ranks tbody tr.late").count(), 1);
    assert.equal(await page.locator(".heat tbody td").count(), 4 * 8);
    await page.getByRole("img", { name: /^loss: now/ }).waitFor({ timeout: PATIENCE });
    await page.getByRole("img", { name: /^steps per second: now/ }).waitFor();
    await page.getByText("Time left").waitFor();
    await page.getByRole("button", { name: /^snapshot at / }).first().waitFor({ timeout: PATIENCE });

    // The step advances without a reload.
    const step = async () => Number(await page.locator(".ranks tbody td.number").first().innerText());
    const before = await step();
    await page.waitForFunction(
      (from) => Number(document.querySelector(".ranks tbody td.number").textContent) > from, before, { timeout: PATIENCE });

    // The hottest cell is that of rank 2 and bucket 5.
    const hottest = await page.evaluate(() => {
      const cells = [...document.querySelectorAll(".heat tbody td")];
      const heat = (cell) => (cell.style.getPropertyValue("--tone").includes("hot") ? 1 : -1) * Number(cell.style.getPropertyValue("--heat"));
      return cells.indexOf(cells.reduce((a, b) => (heat(b) > heat(a) ? b : a)));
    });
    assert.equal(hottest, 2 * 8 + 5);

    // With the keyboard: to the ranks, and through the heat map.
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    await page.locator("[aria-labelledby=heat-title].scroll").focus();
    for (const key of ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"]) await page.keyboard.press(key);
    assert.match(await page.locator(".reading").innerText(), /^rank 2, bucket 2: .* than the median$/);

    // Every control and picture has a name.
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll("button, a, [role=img], [role=region], section")].filter(
        (e) => !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.textContent.trim())).length);
    assert.equal(nameless, 0);
    await page.waitForTimeout(screenshots ? 15_000 : 0);
    await shot(page, "light");
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForTimeout(1200);
    await shot(page, "dark");
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor), "rgb(244, 245, 247)");
    for (const [width, height] of [[360, 740], [1440, 1000], [3840, 2160]]) {
      await page.setViewportSize({ width, height });
      await page.waitForTimeout(300);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `fits ${width} pixels`);
    }
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 390, height: 844 });
    await page.waitForTimeout(1200);
    await shot(page, "phone");
    await job.stop();
    await page.waitForFunction(() => /failed|finished/.test(document.getElementById("sentence").textContent), null, { timeout: PATIENCE });
    assert.deepEqual(problems, []);
    await page.close();
  });

  await test("a killed rank, the restart and the end are shown", async () => {
    const job = new Job(["--nproc-per-node", "4", "--max-restarts", "1"], ["step_ms=20", "kill=1", "kill_step=60", "steps=200"]);
    const { page, problems } = await open(job, { colorScheme: "dark" });
    const failure = page.getByRole("button", { name: /^failure at .*rank 1/ }).first();
    await failure.waitFor({ timeout: PATIENCE });
    await page.locator(".tile.alarm", { hasText: "Lost ranks" }).waitFor();
    await page.getByText(/rank 1 started again, as pid \d+/).first().waitFor({ timeout: PATIENCE });
    await failure.focus();
    assert.equal(await page.locator(".entry.chosen").count(), 1);
    await page.waitForTimeout(screenshots ? 4000 : 0);
    await shot(page, "restart");
    assert.equal(await job.ended, 0);
    await page.getByRole("heading", { name: "All ranks have finished successfully" }).waitFor({ timeout: PATIENCE });
    assert.deepEqual(problems, []);
    await page.close();
  });

  await test("a launcher that vanishes is reported", async () => {
    const job = new Job(["--nproc-per-node", "2"], ["step_ms=20"]);
    const { page } = await open(job);
    await page.getByText(/^Training: step/).first().waitFor({ timeout: PATIENCE });
    job.process.kill("SIGKILL");
    await page.getByRole("alert").waitFor({ timeout: PATIENCE });
    assert.match(await page.getByRole("alert").innerText(), /No connection to the launcher/);
    assert.match(await page.title(), /^\(no connection\)/);
    await page.close();
  });
} finally {
  await browser.close();
}
