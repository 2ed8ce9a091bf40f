"use strict";
(() => {
  const names = new Intl.Collator(undefined, { numeric: true });
  const button = (text, act) => {
    const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
    made.addEventListener("click", act);
    return made;
  };
  const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };

  // A row without a value stays below those with one, whichever way they are sorted: it is no zero.
  const order = (key, sign) => (a, b) => {
    const x = a.value(key), y = b.value(key);
    if (x === null || y === null) return (x === null) - (y === null) || a.at - b.at;
    const by = typeof x === "string" ? names.compare(x, y) : x - y;
    return sign * by || a.at - b.at;
  };

  class Item {
    constructor(row, at) {
      Object.assign(this, { row, at, outcome: row.dataset.outcome, words: null });
    }
    get text() { return (this.words ??= this.row.textContent.toLowerCase()); }
    get task() { return this.row.querySelector(".task").firstChild.textContent.trim(); }
    value(key) {
      if (key === "task" || key === "outcome") return this[key];
      return this.row.dataset[key] === undefined ? null : Number(this.row.dataset[key]);
    }
  }

  class Rows {
    constructor(section, noun, changed) {
      this.table = section.querySelector("table");
      this.items = Array.from(this.table.tBodies).flatMap((body) => Array.from(body.rows)).map((row, at) => new Item(row, at));
      this.shown = section.querySelector(".shown");
      this.more = section.querySelector(".more");
      Object.assign(this, { noun, changed, limit: ROWS_SHOWN, fits: () => true, fitting: this.items, sorted: "" });
      for (const head of this.heads()) {
        head.replaceChildren(button(head.textContent, () => {
          this.sort(head.dataset.sort, head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
          this.changed();
        }));
        head.setAttribute("aria-sort", "none");
      }
    }
    heads() { return Array.from(this.table.tHead.rows[0].cells).filter((head) => head.dataset.sort); }
    sort(key, way) {
      const head = this.heads().find((one) => one.dataset.sort === key);
      if (!head || !["ascending", "descending"].includes(way)) return;
      for (const other of this.heads()) other.setAttribute("aria-sort", other === head ? way : "none");
      this.items.sort(order(key, way === "ascending" ? 1 : -1));
      this.sorted = `${key},${way}`;
      this.update();
    }
    filter(fits) { this.fits = fits; this.limit = ROWS_SHOWN; this.update(); }
    // Only the first rows are laid out: the others keep their place in the document, hidden.
    update() {
      this.fitting = this.items.filter((item) => this.fits(item));
      const visible = this.fitting.slice(0, this.limit), seen = new Set(visible);
      for (const item of this.items) if (!seen.has(item)) item.row.hidden = true;
      for (const item of visible) item.row.hidden = false;
      this.table.tBodies[0].append(...visible.map((item) => item.row));
      const all = this.items.length, fit = this.fitting.length, left = fit - visible.length;
      const count = fit === all ? `${all} ${this.noun}` : `${fit} of ${all} ${this.noun}`;
      say(this.shown, left ? `${count}, the first ${visible.length} are shown` : count);
      this.more.hidden = left === 0;
      if (left === 0) return;
      const further = Math.min(left, ROWS_SHOWN);
      const grow = (limit) => () => { this.limit = limit; this.update(); };
      this.more.replaceChildren(button(`Show ${further} more`, grow(this.limit + further)), button(`Show all ${fit}`, grow(fit)));
    }
    // True if the row is there and may be scrolled to.
    reveal(id) {
      const at = this.fitting.findIndex((item) => item.row.id === id);
      if (at >= this.limit) { this.limit = Math.ceil((at + 1) / ROWS_SHOWN) * ROWS_SHOWN; this.update(); }
      return at >= 0;
    }
  }

  const find = document.getElementById("find");
  const nothing = document.getElementById("nothing");
  const chips = Array.from(document.querySelectorAll(".chip"));
  const wanted = new Set();
  const keep = () => {
    const kept = new URLSearchParams();
    if (find.value) kept.set("find", find.value);
    if (wanted.size) kept.set("outcome", [...wanted].join());
    if (trials.sorted) kept.set("sort", trials.sorted);
    history.replaceState(null, "", `#${kept.size ? "?" : ""}${kept}`);
  };
  const trials = new Rows(document.getElementById("trials"), "trials", keep);
  const section = document.getElementById("tasks");
  if (section) new Rows(section, "tasks", () => {}).update();

  const apply = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const chip of chips) chip.setAttribute("aria-pressed", String(wanted.has(chip.dataset.outcome)));
    trials.filter((item) => (!wanted.size || wanted.has(item.outcome)) && words.every((word) => item.text.includes(word)));
    nothing.hidden = trials.fitting.length > 0;
  };
  const reset = () => { find.value = ""; wanted.clear(); apply(); };
  // The address names a trial, `#<trial id>`, or what is shown, `#?find=…&outcome=…&sort=…`.
  const follow = () => {
    const place = decodeURIComponent(location.hash.slice(1));
    if (place.startsWith("?")) {
      const kept = new URLSearchParams(place);
      find.value = kept.get("find") ?? "";
      for (const outcome of (kept.get("outcome") ?? "").split(",")) {
        if (chips.some((chip) => chip.dataset.outcome === outcome)) wanted.add(outcome);
      }
      trials.sort(...(kept.get("sort") ?? "").split(","));
      return apply();
    }
    const row = document.getElementById(place);
    if (!row || row.parentElement.parentElement !== trials.table) return;
    if (!trials.reveal(place)) { reset(); trials.reveal(place); }
    row.tabIndex = -1;
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  };

  for (const chip of chips) {
    chip.addEventListener("click", () => {
      if (!wanted.delete(chip.dataset.outcome)) wanted.add(chip.dataset.outcome);
      apply();
      keep();
    });
  }
  let soon;
  find.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(() => { apply(); keep(); }, 60);
  });
  document.getElementById("reset").addEventListener("click", () => { reset(); keep(); find.focus(); });
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", () => { trials.limit = Infinity; trials.update(); });
  apply();
  follow();
})();
