"use strict";
// Draws one trajectory. Everything that a model or an environment wrote becomes text nodes, never markup.

/** The page's own explanations: word → sentence. */
const WORDS = new Map([...document.querySelectorAll("#words dt")].map((word) => [word.textContent, word.nextElementSibling.textContent]));
const MOST_SURPRISE = 5; // nats, from which on the colour is strongest

/** An element with attributes and children; strings become text. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Text in which invisible characters, and those that change the direction of writing, are made visible. */
function visible(text) {
  return text
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (sign) => String.fromCharCode(0x2400 + sign.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (sign) =>
      `[U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/** A number for readers. */
function number(value, signed) {
  if (typeof value !== "number") return "–";
  const text = String(Number(value.toPrecision(3))).replace("-", "−");
  return signed && value > 0 ? `+${text}` : text;
}

const SEPARATOR = "[SEP]";

/** Text as it is; in the drawing, the [SEP] of a shop's page also breaks the line. */
function plain(text) {
  const parts = visible(text).split(SEPARATOR);
  return parts.flatMap((part, place) => (place ? [make("span", { class: "sep" }, SEPARATOR), part] : [part]));
}

// The role of a square by the words of a legend; the first match counts: "box on a target" is not a target.
const ROLES = [
  [/in a hole/, "lost"], [/you on/, "arrived"], [/box on/, "done"], [/you/, "you"], [/wall/, "wall"],
  [/hole/, "hole"], [/target|goal/, "target"], [/box/, "box"], [/ice|floor/, "floor"],
];
const USUAL = {
  FrozenLake: { P: "you", _: "floor", O: "hole", G: "target", X: "lost", "√": "arrived" },
  Sokoban: { "#": "wall", _: "floor", O: "target", "√": "done", X: "box", P: "you", S: "arrived" },
};

/** Symbol → role of a square, from the instruction's legend, else from the environment's name; null: no grid. */
function legend(trajectory) {
  const name = Object.keys(USUAL).find((known) => trajectory.env.includes(known));
  if (!name) return null;
  for (const line of (trajectory.turns[0] || { observation: "" }).observation.split("\n")) {
    const entries = line.split(", ").map((entry) => [[...entry][0], [...entry].slice(2).join(""), [...entry][1]]);
    if (entries.length < 4 || entries.some(([, words, blank]) => blank !== " " || !words)) continue;
    const roles = entries.map(([symbol, words]) => [symbol, (ROLES.find(([word]) => word.test(words)) || [])[1]]);
    if (roles.every(([, role]) => role)) return Object.fromEntries(roles);
  }
  return USUAL[name];
}

/** An observation: its grid as squares, all else as text. */
function observation(text, symbols) {
  const lines = text.split("\n");
  const box = make("div", { class: "text", tabindex: 0, role: "group", "aria-label": "observation" });
  const isRow = (line) => symbols && [...line].length > 1 && [...line].every((sign) => sign in symbols);
  let words = [];
  const flush = () => {
    if (words.length) box.append(make("div", {}, ...plain(words.join("\n"))));
    words = [];
  };
  for (let line = 0; line < lines.length; line++) {
    let end = line;
    while (end < lines.length && isRow(lines[end]) && [...lines[end]].length === [...lines[line]].length) end++;
    if (end - line < 2) {
      words.push(lines[line]);
      continue;
    }
    flush();
    box.append(grid(lines.slice(line, end), symbols));
    line = end - 1;
  }
  flush();
  return box;
}

function grid(rows, symbols) {
  const squares = rows.flatMap((row) => [...row].map((sign) =>
    make("span", { class: `square ${symbols[sign]}`, title: symbols[sign] }, sign === "_" ? "" : sign)));
  const drawn = make("div", { class: "grid", role: "img", "aria-label": rows.join(" / ") }, ...squares);
  drawn.style.gridTemplateColumns = `repeat(${[...rows[0]].length}, 1.45em)`;
  return drawn;
}

/** Colour of an advantage: blue above 0, orange below, stronger the farther from it. */
function shade(advantage, largest) {
  if (!advantage) return "transparent";
  const strength = 0.12 + 0.68 * Math.min(1, Math.abs(advantage) / largest);
  return `rgba(${advantage > 0 ? "33,113,190" : "221,107,16"},${strength.toFixed(3)})`;
}

/** Colour of a token's surprise: violet, stronger the less probable the token was. */
function surpriseShade(nats) {
  return `rgba(132,63,196,${(0.75 * Math.min(1, Math.max(0, nats) / MOST_SURPRISE)).toFixed(3)})`;
}

/** Tokens of the environment, which are masked. */
function promptTokens(ids, content) {
  return ids.map((id) => make("span", { class: "token prompt", title: `environment, masked; token ${id}` }, tokenText(id, content)));
}

/** Tokens that the model sampled, coloured by their advantage or, in that mode, by their surprise. */
function sampledTokens(turn, content, mode, largest) {
  return turn.tokens.map((id, index) => {
    const value = Array.isArray(turn.advantage) ? turn.advantage[index] : turn.advantage;
    const surprise = turn.logprobs && typeof turn.logprobs[index] === "number" ? -turn.logprobs[index] : undefined;
    const said = [value === undefined ? "sampled, not trained on" : `sampled, advantage ${number(value, true)}`];
    if (surprise !== undefined) said.push(`surprise ${number(surprise)} nats`);
    const span = make("span", { class: "token sampled", title: `${said.join(", ")}; token ${id}` }, tokenText(id, content));
    if (mode === "surprise" && surprise !== undefined) span.style.backgroundColor = surpriseShade(surprise);
    else if (mode !== "surprise" && value !== undefined) span.style.backgroundColor = shade(value, largest);
    return span;
  });
}

function tokenText(id, content) {
  const text = content.vocabulary[id];
  return text === "" ? "◌" : visible(text);
}

function chips(label, texts, kind) {
  if (!texts || !texts.length) return null;
  const all = texts.map((text) => make("span", { class: `chip ${kind}` }, visible(text)));
  return make("p", { class: "chips" }, make("span", { class: "label" }, label), " ", ...all);
}

function flags(turn) {
  const found = [];
  if (turn.format_is_valid === false) found.push("unreadable reply");
  else if (turn.action_is_valid === false) found.push("invalid action");
  if (turn.cut) found.push("cut at the token limit");
  if (turn.context) found.push(`context rebuilt, ${turn.context} tokens`);
  return found.map((text) => make("span", { class: "flag" }, text));
}

function labelled(label, ...children) {
  return [make("p", { class: "label" }, label), ...children];
}

function textBox(label, ...children) {
  return make("div", { class: "text", tabindex: 0, role: "group", "aria-label": label }, ...children);
}

/** A reply as its thought (null if there is none) and the rest; a thought ends as `ragen_trl/trajectory.py` says. */
function parts(text) {
  const begin = text.indexOf("<think>");
  const inside = begin < 0 ? text : text.slice(begin + "<think>".length);
  let end = inside.search(/<\/think>(?=\s*<(?:answer|tool_call)>)/);
  if (end < 0) end = inside.indexOf("</think>");
  if (end < 0) return begin < 0 ? [null, text] : [inside, ""];
  return [inside.slice(0, end), inside.slice(end + "</think>".length)];
}

/** A reply: its thought, folded, and what the environment acts on. */
function reply(text, thoughts) {
  const [thought, rest] = parts(text);
  const folded = thought === null || !thought.trim() ? [] : [make("details", { class: "thought", open: thoughts },
    make("summary", {}, `Thought, ${thought.trim().split(/\s+/).length} words`), textBox("thought", visible(thought.trim())))];
  return [...folded, ...labelled("Reply", textBox("reply", visible(rest.trim() || "nothing beside the thought")))];
}

/** One turn; `view` has the mode (a key of MODES) and whether thoughts are open. */
function drawTurn(turn, place, content, view, symbols, largest) {
  const head = make("h5", {}, `Turn ${place + 1}`, make("span", { class: "quiet" }, ` reward ${number(turn.reward, true)} `), ...flags(turn));
  const all = [head];
  if (view.mode === "all") {
    all.push(textBox("all tokens", ...promptTokens(turn.prompt, content), ...sampledTokens(turn, content, view.mode, largest)));
  } else {
    all.push(...labelled("Observation", observation(turn.observation, symbols)));
    if (view.mode !== "read" && turn.tokens.length)
      all.push(...labelled("Reply, token by token", textBox("reply tokens", ...sampledTokens(turn, content, view.mode, largest))));
    else all.push(...reply(turn.reply, view.thoughts));
  }
  all.push(chips("Actions", turn.actions, "good"), chips("Invalid", turn.invalid_actions, "bad"),
    chips("Past a limit", turn.surplus_actions, "surplus"));
  return make("section", { class: "turn" }, ...all.filter((part) => part));
}

/** The mean advantage of a trajectory's sampled tokens; undefined if it was not trained on. */
function meanAdvantage(trajectory) {
  let sum = 0, count = 0;
  for (const turn of trajectory.turns) {
    if (turn.advantage === undefined) continue;
    const values = Array.isArray(turn.advantage) ? turn.advantage : turn.tokens.map(() => turn.advantage);
    sum += values.reduce((total, value) => total + value, 0);
    count += values.length;
  }
  return count ? sum / count : undefined;
}

/** The largest absolute advantage of a rollout, which has the strongest colour. */
function largestAdvantage(content) {
  let largest = 0;
  for (const trajectory of content.trajectories)
    for (const turn of trajectory.turns)
      for (const value of [turn.advantage].flat()) largest = Math.max(largest, Math.abs(value) || 0);
  return largest || 1;
}

function drawTrajectory(trajectory, content, view) {
  const symbols = legend(trajectory), largest = largestAdvantage(content), trained = trajectory.group !== undefined;
  const turns = trajectory.turns.map((turn, place) => drawTurn(turn, place, content, view, symbols, largest));
  const end = trajectory.limit === "" ? "the task's end" : `${trajectory.fault ? "fault" : "limit"}: ${trajectory.limit}`;
  const facts = [`return ${number(trajectory.return)}`, trajectory.success ? "success" : "no success",
    ...(trained ? [`advantage ${number(meanAdvantage(trajectory), true)}`] : []), visible(end)];
  const said = [trajectory.error, ...(trajectory.faults || [])].filter((text) => text).map(visible);
  const name = trained ? `Group ${trajectory.group + 1}, member ${trajectory.member + 1}` : `Seed ${nameOf(trajectory)}`;
  return make("article", { class: "trajectory", "aria-label": name }, make("h4", {}, name),
    make("p", { class: "quiet" }, [...facts, ...said].join(" · ")), ...turns);
}
