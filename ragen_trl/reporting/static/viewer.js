// The viewer: choose a source (evaluated episodes, or a training rollout), filter and sort, read episodes side by side.

const GROUPS_A_PAGE = 8, EPISODES_A_PAGE = 16, MOST_OPEN = 4;
const FAULTS = ["crash", "timeout", "error"];
const FILTERS = {
  all: ["all", () => true],
  failed: ["failed", (episode) => !episode.success && !episode.fault],
  succeeded: ["succeeded", (episode) => Boolean(episode.success)],
  invalid: ["invalid reply or action", (episode) => episode.invalid],
  cut: ["cut reply", (episode) => episode.cut],
  fault: ["fault", (episode) => episode.fault],
};
const SORTS = {
  played: ["as played", () => 0],
  low: ["lowest return", (a, b) => a.return - b.return],
  high: ["highest return", (a, b) => b.return - a.return],
  short: ["shortest", (a, b) => a.turns.length - b.turns.length],
  long: ["longest", (a, b) => b.turns.length - a.turns.length],
};
const MODES = {
  read: "Text", advantage: "Tokens by advantage", surprise: "Tokens by surprise", all: "Everything the model read",
};
const START = { run: 0, source: null, group: null, filter: "all", env: "", words: "", sort: "played", open: null,
  mode: "read", thoughts: false };

const page = JSON.parse(document.getElementById("sources").textContent);
const root = document.getElementById("viewer");
const search = make("input", { id: "words", type: "search", placeholder: "words in any turn", input: () => go({ words: search.value }) });
const opened = new Map(); // the last sources, unpacked
const state = { ...START };
let shown = null; // the source in view
let wanted = 0; // counts requests, so that a slow one does not overwrite a later one

/** Unpack a source (base64, gzip, JSON), and note of each episode what the filters ask. */
async function load(block) {
  if (opened.has(block)) return opened.get(block);
  const text = atob(document.getElementById(block).textContent);
  const bytes = Uint8Array.from(text, (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const content = JSON.parse(await new Response(stream).text());
  const groups = new Map();
  content.trajectories.forEach((episode, place) => {
    episode.place = place;
    episode.fault = FAULTS.includes(episode.limit);
    episode.invalid = episode.turns.some((turn) => turn.format_is_valid === false || turn.action_is_valid === false);
    episode.cut = episode.turns.some((turn) => turn.cut);
    if (episode.group === undefined) return;
    if (!groups.has(episode.group)) groups.set(episode.group, []);
    groups.get(episode.group).push(episode);
  });
  content.groups = [...groups.values()];
  opened.set(block, content);
  if (opened.size > 4) opened.delete(opened.keys().next().value);
  return content;
}

const clamp = (value, length) => Math.max(0, Math.min(length - 1, value | 0));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
/** The sample standard deviation, by which StarPO-S's filter ranks groups, 0 if it is rounding; undefined for one value. */
function deviation(values) {
  if (values.length < 2) return undefined;
  const std = Math.sqrt(values.reduce((sum, value) => sum + (value - mean(values)) ** 2, 0) / (values.length - 1));
  return std > 1e-6 * Math.max(1, ...values.map(Math.abs)) ? std : 0;
}

const sources = () => page.runs[state.run].sources;
/** The place of the chosen source; without a choice the newest rollout, else the episodes of the last model. */
const sourcePlace = () => {
  const found = sources().findIndex((source) => source.name === state.source);
  return found >= 0 ? found : Math.max(0, sources().findLastIndex((source) => source.name !== "evaluation: oracle"));
};

/** The text in which words are searched, in small letters. */
function textOf(episode) {
  episode.text ??= episode.turns.map((turn) => `${turn.observation}\n${turn.reply}`).join("\n").toLowerCase();
  return episode.text;
}

/** The episodes that pass the filters, in the chosen order. */
function listed() {
  const pool = state.group === null || !shown.groups.length ? shown.trajectories : shown.groups[state.group];
  const words = state.words.trim().toLowerCase();
  return pool
    .filter(FILTERS[state.filter][1])
    .filter((episode) => !state.env || episode.env === state.env)
    .filter((episode) => !words || textOf(episode).includes(words))
    .sort(SORTS[state.sort][1]);
}

/** The episodes with the highest and the lowest return, from which most is learned; one if all returns are equal. */
function extremes(episodes) {
  const returns = episodes.map((episode) => episode.return);
  const places = [returns.indexOf(Math.max(...returns)), returns.indexOf(Math.min(...returns))];
  return [...new Set(places)].map((place) => episodes[place].place);
}

/**
 * Change what is in view. Where the change does not say so, a rollout opens at its first group that was trained on, a
 * group at its extremes, and evaluated episodes at the first one that passes the filters.
 */
async function go(change) {
  const outer = "run" in change || "source" in change;
  if (outer) Object.assign(state, { group: undefined, env: "", open: null });
  if ("group" in change) state.open = null;
  Object.assign(state, change);
  state.run = clamp(state.run, page.runs.length);
  const source = sources()[sourcePlace()];
  state.source = source.name;
  const request = ++wanted;
  try {
    const content = await load(source.block);
    if (request !== wanted) return;
    shown = content;
    if (state.group === undefined) state.group = shown.groups.length ? Math.max(0, shown.groups.findIndex((group) => group[0].kept)) : null;
    if (state.group !== null) state.group = shown.groups.length ? clamp(state.group, shown.groups.length) : null;
    if (!shown.vocabulary) state.mode = "read";
    const list = listed(), there = new Set(list.map((episode) => episode.place));
    state.open = (state.open ?? []).filter((place) => there.has(place)).slice(-MOST_OPEN);
    if (!state.open.length && list.length) state.open = state.group === null ? [list[0].place] : extremes(list);
    draw(list);
  } catch (error) {
    root.replaceChildren(controls(), make("p", { role: "alert" },
      `These episodes cannot be shown: ${error.message}. The viewer needs a browser of 2023 or later.`));
  }
}

/** Draw everything again and keep the focus on the control that had it. */
function draw(list) {
  const focus = document.activeElement && document.activeElement.id;
  const open = list.filter((episode) => state.open.includes(episode.place));
  root.replaceChildren(controls(), make("div", { class: shown.groups.length ? "tables" : "" },
    shown.groups.length ? groupTable() : null, episodeTable(list)),
    make("div", { class: "columns" }, ...open.map((episode) => drawTrajectory(episode, shown, state))));
  if (focus && root.querySelector(`#${CSS.escape(focus)}`)) document.getElementById(focus).focus();
  const kept = Object.entries(state).filter(([key, value]) => String(value) !== String(START[key]));
  const place = new URLSearchParams(kept.map(([key, value]) => [key, String(value)])).toString();
  try {
    history.replaceState(null, "", `#${place}`);
  } catch { /* a page inside another one has no address of its own */ }
  root.dataset.ready = place;
  performance.mark("episodes drawn");
  document.dispatchEvent(new Event("drawn"));
}

function choice(id, label, options, chosen, change) {
  const entries = options.map(([value, text]) => make("option", { value, selected: value === chosen }, text));
  return make("label", {}, label, make("select", { id, change: (event) => change(event.target.value) }, ...entries));
}

function button(id, text, label, disabled, click) {
  return make("button", { id, type: "button", "aria-label": label, disabled, click }, text);
}

function toggle(id, text, pressed, click) {
  return make("button", { id, type: "button", "aria-pressed": String(pressed), click }, text);
}

function controls() {
  const place = sourcePlace(), names = sources().map((source) => source.name);
  const envs = [...new Set((shown ? shown.trajectories : []).map((episode) => episode.env))];
  const named = (table) => Object.entries(table).map(([key, [text]]) => [key, text]);
  const modes = Object.entries(MODES).map(([mode, text]) => toggle(`mode-${mode}`, text, state.mode === mode, () => go({ mode })));
  search.value = state.words;
  return make("div", { class: "controls" },
    page.runs.length > 1 ? choice("run", "Run", page.runs.map((run, at) => [at, run.label]), state.run, (run) => go({ run: Number(run) })) : null,
    button("source-back", "‹", "source before", place === 0, () => go({ source: names[place - 1] })),
    choice("source", "Source", names.map((name) => [name, name]), names[place], (source) => go({ source })),
    button("source-on", "›", "source after", place === names.length - 1, () => go({ source: names[place + 1] })),
    choice("filter", "Show", named(FILTERS), state.filter, (filter) => go({ filter })),
    envs.length > 1 ? choice("env", "Environment", [["", "all"], ...envs.map((env) => [env, env])], state.env, (env) => go({ env })) : null,
    choice("sort", "Sort", named(SORTS), state.sort, (sort) => go({ sort })),
    make("label", {}, "Find", search),
    toggle("thoughts", "Open thoughts", state.thoughts, () => go({ thoughts: !state.thoughts })),
    shown && shown.vocabulary ? make("div", { class: "modes", role: "group", "aria-label": "show" }, ...modes) : null,
    state.mode === "read" ? null : scale());
}

function scale() {
  const largest = state.mode === "surprise" ? MOST_SURPRISE : largestAdvantage(shown || { trajectories: [] });
  const shares = state.mode === "surprise" ? [0, 0.2, 0.5, 1] : [-1, -0.5, 0, 0.5, 1];
  const samples = shares.map((share) => {
    const sample = make("span", { class: "token sampled" }, number(share * largest, state.mode !== "surprise"));
    sample.style.backgroundColor = state.mode === "surprise" ? surpriseShade(share * largest) : shade(share * largest, largest);
    return sample;
  });
  const said = state.mode === "surprise" ? "surprise: −ln of the token's probability when it was sampled " : "advantage ";
  return make("p", { class: "quiet scale" }, said, ...samples,
    ...(state.mode === "all" ? [" ", make("span", { class: "token prompt" }, "environment: masked")] : []));
}

/** The page of a table's rows that holds the chosen row. */
function paged(id, rows, size, chosen, move) {
  const first = Math.floor(Math.max(0, chosen) / size) * size;
  const end = Math.min(rows, first + size);
  if (rows <= size) return { first, end, turn: null };
  const turn = make("p", { class: "pages" },
    button(`${id}-back`, "‹", `earlier ${id}`, first === 0, () => move(first - size)),
    ` ${first + 1}–${end} of ${rows} `,
    button(`${id}-on`, "›", `later ${id}`, end === rows, () => move(first + size)));
  return { first, end, turn };
}

function table(caption, heads, rows) {
  return [make("h3", {}, caption), make("div", { class: "table", tabindex: 0 },
    make("table", { class: "numbers", "aria-label": caption },
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col", title: WORDS.get(head) }, head)))),
      make("tbody", {}, ...rows)))];
}

function row(chosen, id, text, cells, click) {
  return make("tr", { class: chosen ? "chosen" : null, click },
    make("th", { scope: "row" }, make("button", { id, type: "button", "aria-pressed": String(chosen) }, text)),
    ...cells.map((cell, place) => make("td", { class: place === cells.length - 1 ? "actions" : null }, cell)));
}

function groupTable() {
  const { first, end, turn } = paged("groups", shown.groups.length, GROUPS_A_PAGE, state.group ?? 0, (group) => go({ group }));
  const rows = [];
  for (let place = first; place < end; place++) {
    const group = shown.groups[place], returns = group.map((member) => member.return);
    const cells = [String(group[0].seed), `${group.filter((member) => member.success).length} of ${group.length}`,
      group[0].kept ? "yes" : "no", number(deviation(returns)),
      `${number(mean(returns))} (${number(Math.min(...returns))} to ${number(Math.max(...returns))})`];
    rows.push(row(place === state.group, `group-${place}`, String(place + 1), cells, () => go({ group: place === state.group ? null : place })));
  }
  const heads = ["group", "seed", "success", "trained on", "std", "return"];
  return make("div", {}, ...table("Groups: attempts at one start state each", heads, rows),
    make("p", { class: "pages" }, toggle("every-group", "all groups", state.group === null, () => go({ group: null }))), turn ?? "");
}

/** What an episode is called: its group and member, or its seed and sample. */
function nameOf(episode) {
  if (episode.group !== undefined) return `${episode.group + 1}.${episode.member + 1}`;
  return episode.sample ? `${episode.seed} / ${episode.sample + 1}` : String(episode.seed);
}

function episodeTable(list) {
  const chosen = list.findIndex((episode) => state.open.includes(episode.place));
  const { first, end, turn } = paged("episodes", list.length, EPISODES_A_PAGE, chosen, (at) => go({ open: [list[at].place] }));
  const trained = shown.groups.length > 0;
  const rows = list.slice(first, end).map((episode) => {
    const actions = episode.turns.map((played) => (played.actions || []).join(", ") || "–").join(" | ");
    const happened = [episode.fault ? "fault" : "", episode.invalid ? "invalid" : "", episode.cut ? "cut" : ""];
    const cells = [number(episode.return), episode.success ? "yes" : "no",
      ...(trained ? [number(meanAdvantage(episode), true)] : []), String(episode.turns.length),
      happened.filter((word) => word).join(", "), visible(actions.length > 160 ? `${actions.slice(0, 159)}…` : actions)];
    return row(state.open.includes(episode.place), `episode-${episode.place}`, nameOf(episode), cells, () => choose(episode.place));
  });
  const heads = [trained ? "episode" : "seed", "return", "success", ...(trained ? ["advantage"] : []), "turns", "marks", "actions, turn by turn"];
  const said = `${list.length} of ${shown.trajectories.length} episodes: choose up to ${MOST_OPEN} to read side by side`;
  return make("div", {}, ...table(said, heads, rows), turn ?? "");
}

/** Open an episode beside the others, or close it; the last one stays open. */
function choose(place) {
  const others = state.open.filter((other) => other !== place);
  if (others.length === state.open.length) go({ open: [...state.open, place] });
  else if (others.length) go({ open: others });
}

function onKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select, input, .text, .table:focus")) return;
  const by = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by === undefined || shown === null) return;
  event.preventDefault();
  const list = listed();
  if (event.shiftKey) go({ source: sources()[clamp(sourcePlace() + by, sources().length)].name });
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    if (shown.groups.length) go({ group: (state.group ?? -1) + by });
  } else if (list.length) {
    const place = list.findIndex((episode) => episode.place === state.open.at(-1));
    go({ open: [list[clamp(place + by, list.length)].place] });
  }
}

/** The state that the address gives: #source=trained&filter=failed&open=0,2. */
function asked() {
  const given = new URLSearchParams(location.hash.slice(1));
  const change = { ...START, group: undefined };
  for (const key of ["source", "env", "words"]) if (given.has(key)) change[key] = given.get(key);
  for (const [key, table] of [["filter", FILTERS], ["sort", SORTS], ["mode", MODES]])
    if (Object.hasOwn(table, given.get(key))) change[key] = given.get(key);
  for (const key of ["run", "group"]) if (/^\d+$/.test(given.get(key))) change[key] = Number(given.get(key));
  if (given.get("open")) change.open = given.get("open").split(",").map(Number);
  change.thoughts = given.get("thoughts") === "true";
  return change;
}

if (page.runs.length) {
  root.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", () => go(asked()));
  go(asked());
}
