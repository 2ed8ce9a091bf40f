"use strict";
(() => {
  const table = document.querySelector("table.trials");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row, at) => ({
    row, at,
    text: null,
    task: row.querySelector(".task").firstChild.textContent,
    k: Number(row.dataset.k),
    outcome: row.dataset.outcome,
    reward: row.dataset.reward === undefined ? null : Number(row.dataset.reward),
    time: row.dataset.time === undefined ? null : Number(row.dataset.time),
  }));
  const find = document.getElementById("find");
  const shown = document.getElementById("shown");
  const nothing = document.getElementById("nothing");
  const chips = Array.from(document.querySelectorAll(".chip"));
  const wanted = new Set();
  const names = new Intl.Collator(undefined, { numeric: true });

  const apply = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const item of rows) {
      let fits = wanted.size === 0 || wanted.has(item.outcome);
      if (fits && words.length) {
        item.text ??= item.row.textContent.toLowerCase();
        fits = words.every((word) => item.text.includes(word));
      }
      item.row.hidden = !fits;
      if (fits) count += 1;
    }
    shown.textContent = count === rows.length ? `${count} trials` : `${count} of ${rows.length} trials`;
    nothing.hidden = count > 0;
  };

  // A trial without a value stays below those with one, whichever way they are sorted: it is no zero.
  const order = (key, sign) => (a, b) => {
    const x = a[key], y = b[key];
    if (x === null || y === null) return (x === null) - (y === null) || a.at - b.at;
    const by = typeof x === "string" ? names.compare(x, y) : x - y;
    return sign * by || a.at - b.at;
  };

  const sort = (head) => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) if (other.dataset.sort) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    rows.sort(order(head.dataset.sort, up ? 1 : -1));
    body.append(...rows.map((item) => item.row));
  };

  for (const head of table.tHead.rows[0].cells) {
    if (!head.dataset.sort) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(head));
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
  }
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      const on = chip.getAttribute("aria-pressed") !== "true";
      chip.setAttribute("aria-pressed", String(on));
      wanted[on ? "add" : "delete"](chip.dataset.outcome);
      apply();
    });
  }
  let soon;
  find.addEventListener("input", () => { clearTimeout(soon); soon = setTimeout(apply, 60); });
  document.getElementById("reset").addEventListener("click", () => {
    find.value = "";
    wanted.clear();
    for (const chip of chips) chip.setAttribute("aria-pressed", "false");
    apply();
    find.focus();
  });
  document.querySelector(".controls").hidden = false;
  apply();
})();
