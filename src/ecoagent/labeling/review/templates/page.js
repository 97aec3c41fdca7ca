"use strict";
(function () {
  // Texts of the sample reach the page through textContent only: nothing in them can become markup.
  const sample = JSON.parse(document.getElementById("data").textContent);
  const items = sample.items;
  const el = (id) => document.getElementById(id);
  const ANSWERS = ["yes", "no", "unsure"];
  const PREFIX = "ecoagent-review:" + sample.digest + ":";
  const LAST = PREFIX + "last";
  let stored = true;
  let state = null;
  let dirty = false;

  function get(key) {
    try {
      const text = window.localStorage.getItem(key);
      return text === null ? null : JSON.parse(text);
    } catch (error) {
      return null;
    }
  }

  function put(key, value) {
    try {
      window.localStorage.setItem(key, JSON.stringify(value));
    } catch (error) {
      stored = false;
    }
  }

  function say(text, bad) {
    el("message").textContent = text;
    el("message").className = bad ? "bad" : "";
  }

  function keyOf(name, kind) {
    return PREFIX + kind + ":" + name.toLowerCase();
  }

  function kindChosen() {
    const chosen = document.querySelector('input[name="kind"]:checked');
    return chosen ? chosen.value : "";
  }

  function own(object, key) {
    return Object.prototype.hasOwnProperty.call(object, key);
  }

  // What the browser kept may be damaged or of a later form: take what is well formed.
  function restored(name, kind) {
    const fresh = { judge: name, judge_kind: kind, at: 0, answers: {}, notes: {}, history: [] };
    const kept = get(keyOf(name, kind));
    if (!kept || kept.judge_kind !== kind || typeof kept.answers !== "object" || kept.answers === null) return fresh;
    fresh.judge = kept.judge || name;
    for (const item of items) {
      const answer = own(kept.answers, item.id) ? kept.answers[item.id] : null;
      if (answer && ANSWERS.includes(answer.judgement)) {
        fresh.answers[item.id] = { judgement: answer.judgement, saw_verdict: answer.saw_verdict === true };
      }
      const note = kept.notes && own(kept.notes, item.id) ? kept.notes[item.id] : "";
      if (typeof note === "string" && note) fresh.notes[item.id] = note;
    }
    if (Array.isArray(kept.history)) {
      fresh.history = kept.history.filter((h) => h && items.some((i) => i.id === h.id)).slice(-200);
    }
    if (Number.isInteger(kept.at) && kept.at >= 0 && kept.at < items.length) fresh.at = kept.at;
    return fresh;
  }

  function save() {
    put(keyOf(state.judge, state.judge_kind), state);
    put(LAST, { judge: state.judge, judge_kind: state.judge_kind });
    if (!stored) say("This browser keeps nothing for this page: download before you close it.", true);
  }

  function begin() {
    const name = el("name").value.replace(/\s+/g, " ").trim();
    const kind = kindChosen();
    if (!name || !kind) {
      say("Give a name, and say whether a person or a model judges.", true);
      (name ? document.querySelector('input[name="kind"]') : el("name")).focus();
      return;
    }
    state = restored(name, kind);
    lock(true);
    el("work").hidden = false;
    const done = Object.keys(state.answers).length;
    say(done ? done + " judgements of " + state.judge + " found in this browser." : "Press y, n or u.");
    save();
    show();
    el("pair").focus();
  }

  // Name and kind stay as they were at the first judgement: one file, one judge.
  function lock(on) {
    el("name").disabled = on;
    for (const radio of document.querySelectorAll('input[name="kind"]')) radio.disabled = on;
    el("start").hidden = on;
    el("other").hidden = !on;
  }

  function other() {
    state = null;
    lock(false);
    el("work").hidden = true;
    el("name").value = "";
    for (const radio of document.querySelectorAll('input[name="kind"]')) radio.checked = false;
    el("progress").value = 0;
    el("counts").textContent = "0 of " + items.length + " judged";
    say("What was judged so far is kept under the other name.");
    el("name").focus();
  }

  function line(id, label, values) {
    el(id).textContent = values.length ? label + values.join("; ") : "";
    el(id).hidden = !values.length;
  }

  function show() {
    const item = items[state.at];
    const answer = state.answers[item.id];
    el("place").textContent = state.at + 1 + " of " + items.length;
    el("query").textContent = item.query;
    el("tool-name").textContent = item.tool_name;
    el("tool-from").textContent = (item.tool_group ? "Belongs to: " + item.tool_group + ". " : "") + "Catalog: " + item.tool_source + ". " + item.tool_id;
    el("tool-description").textContent = item.tool_description || "(no description)";
    line("tool-operations", "It can: ", item.tool_operations);
    line("tool-parameters", "Parameters: ", item.tool_parameters);
    el("verdict").hidden = !el("show").checked;
    el("verdict").textContent = el("show").checked
      ? "The labeller " + (item.kept ? "kept" : "rejected") + " this pair" + (item.score === null ? "." : ", score " + item.score.toFixed(3) + ".")
      : "";
    for (const name of ANSWERS) el(name).setAttribute("aria-pressed", String(Boolean(answer) && answer.judgement === name));
    el("note").value = own(state.notes, item.id) ? state.notes[item.id] : "";
    const count = Object.keys(state.answers).length;
    el("progress").value = count;
    el("counts").textContent = count + " of " + items.length + " judged";
    el("undo").disabled = !state.history.length;
    el("back").disabled = state.at === 0;
    el("next").disabled = state.at === items.length - 1;
  }

  function move(by) {
    const to = Math.min(items.length - 1, Math.max(0, state.at + by));
    if (to !== state.at) {
      state.at = to;
      save();
      show();
    }
  }

  function nextOpen() {
    for (let step = 1; step <= items.length; step += 1) {
      const at = (state.at + step) % items.length;
      if (!own(state.answers, items[at].id)) {
        state.at = at;
        save();
        show();
        return true;
      }
    }
    return false;
  }

  function judge(judgement) {
    const item = items[state.at];
    state.history.push({ id: item.id, before: state.answers[item.id] || null });
    state.history = state.history.slice(-200);
    state.answers[item.id] = { judgement: judgement, saw_verdict: el("show").checked };
    dirty = true;
    say("Pair " + (state.at + 1) + ": " + judgement + ".");
    if (state.at < items.length - 1) state.at += 1;
    if (Object.keys(state.answers).length === items.length) say("All pairs are judged. Press e to download.");
    save();
    show();
  }

  function undo() {
    const last = state.history.pop();
    if (!last) return;
    if (last.before) state.answers[last.id] = last.before;
    else delete state.answers[last.id];
    state.at = items.findIndex((i) => i.id === last.id);
    dirty = true;
    say("Undone: pair " + (state.at + 1) + ".");
    save();
    show();
  }

  function download() {
    if (!state || !state.judge || !["human", "model"].includes(state.judge_kind)) {
      say("Give a name, and say whether a person or a model judges.", true);
      return;
    }
    const rows = items
      .filter((i) => own(state.answers, i.id))
      .map((i) => ({
        id: i.id,
        judgement: state.answers[i.id].judgement,
        note: own(state.notes, i.id) ? state.notes[i.id] : "",
        saw_verdict: state.answers[i.id].saw_verdict,
        judge: state.judge,
        judge_kind: state.judge_kind,
      }));
    if (!rows.length) {
      say("Nothing is judged yet.", true);
      return;
    }
    const value = { format: sample.format, sample: sample.digest, run: sample.run, judge: state.judge, judge_kind: state.judge_kind, judgements: rows };
    const slug = state.judge.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "") || "judge";
    const link = document.createElement("a");
    const url = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1) + "\n"], { type: "application/json" }));
    link.href = url;
    link.download = "judgements-" + sample.digest + "-" + state.judge_kind + "-" + slug + ".json";
    document.body.appendChild(link);
    link.click();
    link.remove();
    window.setTimeout(() => URL.revokeObjectURL(url), 10000);
    dirty = false;
    say(rows.length + " of " + items.length + " judgements downloaded.");
  }

  const ACTIONS = {
    y: () => judge("yes"),
    n: () => judge("no"),
    u: () => judge("unsure"),
    s: () => move(1),
    z: undo,
    o: () => nextOpen() || say("All pairs are judged."),
    e: download,
    m: () => el("note").focus(),
    ArrowLeft: () => move(-1),
    ArrowRight: () => move(1),
  };

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    const typing = target instanceof HTMLElement && (target.tagName === "TEXTAREA" || (target.tagName === "INPUT" && target.type === "text"));
    if (typing) {
      if (event.key === "Escape" && target.id === "note") el("pair").focus();
      if (event.key === "Enter" && target.id === "name") begin();
      return;
    }
    if (!state || event.altKey || event.metaKey || event.isComposing || event.repeat) return;
    if (event.ctrlKey && event.key.toLowerCase() !== "z") return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    // Arrows move between radio buttons; leave them there.
    if (!own(ACTIONS, key) || (target instanceof HTMLInputElement && target.type === "radio")) return;
    event.preventDefault();
    ACTIONS[key]();
  });

  el("start").addEventListener("click", begin);
  el("other").addEventListener("click", other);
  for (const name of ANSWERS) el(name).addEventListener("click", () => judge(name));
  el("skip").addEventListener("click", () => move(1));
  el("undo").addEventListener("click", undo);
  el("back").addEventListener("click", () => move(-1));
  el("next").addEventListener("click", () => move(1));
  el("open").addEventListener("click", ACTIONS.o);
  el("export").addEventListener("click", download);
  el("show").addEventListener("change", show);
  el("note").addEventListener("input", () => {
    const id = items[state.at].id;
    if (el("note").value) state.notes[id] = el("note").value;
    else delete state.notes[id];
    dirty = true;
    save();
  });
  el("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  window.addEventListener("beforeunload", (event) => {
    if (dirty && !stored) event.preventDefault();
  });

  const last = get(LAST);
  if (last && typeof last.judge === "string") {
    el("name").value = last.judge;
    for (const radio of document.querySelectorAll('input[name="kind"]')) radio.checked = radio.value === last.judge_kind;
    say("Welcome back: press Start judging to go on.");
  }
})();
