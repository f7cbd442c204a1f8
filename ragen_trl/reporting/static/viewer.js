// The viewer: choose run, step, group and member; shows the members of a group side by side.

const GROUPS_A_PAGE = 8, MEMBERS_A_PAGE = 16, MOST_OPEN = 4;
const page = JSON.parse(document.getElementById("recorded-index").textContent);
const root = document.getElementById("viewer");
const opened = new Map(); // the last rollouts, unpacked
const state = { run: 0, step: 0, group: null, members: null, mode: "read" };
let shown = null; // the rollout in view
let wanted = 0; // counts requests, so that a slow one does not overwrite a later one

/** Unpack a rollout: base64, gzip, JSON. */
async function load(name) {
  if (opened.has(name)) return opened.get(name);
  const text = atob(document.getElementById(name).textContent);
  const bytes = Uint8Array.from(text, (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const content = JSON.parse(await new Response(stream).text());
  content.groups = [];
  for (const trajectory of content.trajectories) (content.groups[trajectory.group] ||= []).push(trajectory);
  content.groups = content.groups.filter((group) => group);
  opened.set(name, content);
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
const steps = () => page.runs[state.run].steps;

/** The members with the highest and the lowest return, from which most is learned; one if all returns are equal. */
function extremes(group) {
  const returns = group.map((member) => member.return);
  return [...new Set([returns.indexOf(Math.max(...returns)), returns.indexOf(Math.min(...returns))])];
}

/**
 * Change what is in view. Where the change does not say so, a step opens at its first group that was trained on, and a
 * group at its extremes.
 */
async function go(change) {
  const outer = "run" in change || "step" in change;
  if (outer) state.group = null;
  if (outer || "group" in change) state.members = null;
  Object.assign(state, change);
  state.run = clamp(state.run, page.runs.length);
  state.step = clamp(state.step, steps().length);
  const request = ++wanted;
  try {
    const content = await load(steps()[state.step].block);
    if (request !== wanted) return;
    shown = content;
    state.group = clamp(state.group ?? shown.groups.findIndex((group) => group[0].kept), shown.groups.length);
    const group = shown.groups[state.group];
    const members = state.members ?? extremes(group);
    state.members = [...new Set(members.map((member) => clamp(member, group.length)))].slice(-MOST_OPEN);
    draw();
  } catch (error) {
    root.replaceChildren(controls(), make("p", { role: "alert" },
      `This rollout cannot be shown: ${error.message}. The viewer needs a browser of 2023 or later.`));
  }
}

/** Draw everything again and keep the focus on the control that had it. */
function draw() {
  const focus = document.activeElement && document.activeElement.id;
  const group = shown.groups[state.group];
  const open = [...state.members].sort((a, b) => a - b);
  root.replaceChildren(controls(), make("div", { class: "tables" }, groupTable(), memberTable(group)),
    make("div", { class: "columns" }, ...open.map((member) => drawTrajectory(group[member], shown, state.mode))));
  if (focus && root.querySelector(`#${CSS.escape(focus)}`)) document.getElementById(focus).focus();
  const place = `run=${state.run}&step=${state.step}&group=${state.group}&members=${state.members.join(",")}&mode=${state.mode}`;
  try {
    history.replaceState(null, "", `#${place}`);
  } catch { /* a page inside another one has no address of its own */ }
  root.dataset.ready = place;
  performance.mark("trajectories drawn");
}

function choice(id, label, options, chosen, change) {
  const entries = options.map((text, place) => make("option", { value: place, selected: place === chosen }, text));
  return make("label", {}, label, make("select", { id, change: (event) => change(Number(event.target.value)) }, ...entries));
}

function button(id, text, label, disabled, click) {
  return make("button", { id, type: "button", "aria-label": label, disabled, click }, text);
}

const MODES = { read: "Text", tokens: "Tokens by advantage", all: "Everything the model read" };

function controls() {
  const last = steps().length - 1;
  const modes = Object.entries(MODES).map(([mode, text]) => make("button",
    { id: `mode-${mode}`, type: "button", "aria-pressed": String(state.mode === mode), click: () => go({ mode }) }, text));
  return make("div", { class: "controls" },
    page.runs.length > 1 ? choice("run", "Run", page.runs.map((run) => run.label), state.run, (run) => go({ run })) : null,
    button("step-back", "‹", "earlier step", state.step === 0, () => go({ step: state.step - 1 })),
    choice("step", "Step", steps().map((step) => step.name), state.step, (step) => go({ step })),
    button("step-on", "›", "later step", state.step === last, () => go({ step: state.step + 1 })),
    make("div", { class: "modes", role: "group", "aria-label": "show" }, ...modes),
    state.mode === "read" ? null : scale());
}

function scale() {
  const largest = largestAdvantage(shown || { trajectories: [] });
  const samples = [-1, -0.5, 0, 0.5, 1].map((share) => {
    const sample = make("span", { class: "token sampled" }, number(share * largest, true));
    sample.style.backgroundColor = shade(share * largest, largest);
    return sample;
  });
  return make("p", { class: "quiet scale" }, "advantage ", ...samples,
    ...(state.mode === "all" ? [" ", make("span", { class: "token prompt" }, "environment: masked")] : []));
}

/** The page of a table's rows that holds the chosen row. */
function paged(id, rows, size, chosen, move) {
  const first = Math.floor(chosen / size) * size;
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
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...rows)))];
}

function row(chosen, id, text, cells, click) {
  return make("tr", { class: chosen ? "chosen" : null, click },
    make("th", { scope: "row" }, make("button", { id, type: "button", "aria-pressed": String(chosen) }, text)),
    ...cells.map((cell) => make("td", { class: cell.includes(" | ") ? "actions" : null }, cell)));
}

function groupTable() {
  const { first, end, turn } = paged("groups", shown.groups.length, GROUPS_A_PAGE, state.group, (group) => go({ group }));
  const several = new Set(shown.trajectories.map((trajectory) => trajectory.env)).size > 1;
  const rows = [];
  for (let place = first; place < end; place++) {
    const group = shown.groups[place], returns = group.map((member) => member.return);
    const cells = [...(several ? [group[0].env] : []), String(group[0].seed),
      `${group.filter((member) => member.success).length} of ${group.length}`,
      group[0].kept ? "yes" : "no", number(deviation(returns)),
      `${number(mean(returns))} (${number(Math.min(...returns))} to ${number(Math.max(...returns))})`];
    rows.push(row(place === state.group, `group-${place}`, String(place + 1), cells, () => go({ group: place })));
  }
  const heads = ["group", ...(several ? ["environment"] : []), "seed", "success", "trained on", "std", "return"];
  return make("div", {}, ...table("Groups: attempts at one start state each", heads, rows), turn ?? "");
}

function memberTable(group) {
  const lowest = Math.min(...state.members);
  const { first, end, turn } = paged("members", group.length, MEMBERS_A_PAGE, lowest, (member) => go({ members: [member] }));
  const rows = group.slice(first, end).map((member, index) => {
    const place = first + index;
    const actions = member.turns.map((played) => (played.actions || []).join(", ") || "–").join(" | ");
    const cells = [number(member.return), member.success ? "yes" : "no", number(meanAdvantage(member), true),
      String(member.turns.length), visible(actions.length > 160 ? `${actions.slice(0, 159)}…` : actions)];
    return row(state.members.includes(place), `member-${place}`, String(place + 1), cells, () => toggle(place));
  });
  return make("div", {}, ...table(`Group ${state.group + 1}: choose up to ${MOST_OPEN} members to see side by side`,
    ["member", "return", "success", "advantage", "turns", "actions, turn by turn"], rows), turn ?? "");
}

/** Open a member beside the others, or close it; the last one stays open. */
function toggle(place) {
  const others = state.members.filter((member) => member !== place);
  if (others.length === state.members.length) go({ members: [...state.members, place] });
  else if (others.length) go({ members: others });
}

function onKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select, .text, .table:focus")) return;
  const by = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by === undefined || shown === null) return;
  event.preventDefault();
  if (event.key === "ArrowUp" || event.key === "ArrowDown") go({ members: [state.members.at(-1) + by] });
  else if (event.shiftKey) go({ step: state.step + by });
  else go({ group: state.group + by });
}

/** The state that the address gives: #run=0&step=3&group=1&members=0,2&mode=tokens. */
function asked() {
  const given = new URLSearchParams(location.hash.slice(1));
  const change = {};
  for (const key of ["run", "step", "group"]) if (given.has(key)) change[key] = Number(given.get(key));
  if (given.has("members")) change.members = given.get("members").split(",").map(Number);
  if (given.get("mode") in MODES) change.mode = given.get("mode");
  return change;
}

if (page.runs.length) {
  root.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", () => go(asked()));
  const change = asked();
  go("step" in change ? change : { ...change, step: page.runs[clamp(change.run, page.runs.length)].steps.length - 1 });
}
