"use strict";
// What changes by itself is asked for again every few seconds, as long as the page is looked at. Without this script, or
// where the service is away, the page stays as it came, and a reload shows what is new.
(() => {
  const find = (root) => root.getElementById("live");
  let pause = 0;
  const wait = () => setTimeout(look, pause * 1000);
  const look = async () => {
    if (document.hidden) return wait();
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = find(page), shown = find(document);
      if (!answer.ok || !fresh || !shown) return;  // signed out, or gone: what is shown stays
      const busy = shown.contains(document.activeElement) && /^(INPUT|SELECT)$/.test(document.activeElement.tagName);
      const selected = !getSelection().isCollapsed;
      if (!busy && !selected && fresh.innerHTML !== shown.innerHTML) {
        const place = document.activeElement?.getAttribute?.("href");
        const within = shown.contains(document.activeElement);
        shown.replaceChildren(...fresh.childNodes);
        document.title = page.title;
        if (within && place) shown.querySelector(`a[href="${CSS.escape(place)}"]`)?.focus({ preventScroll: true });
      }
      pause = Number(fresh.dataset.live || 0);
      if (!pause) return location.reload();  // it has ended: the rest of the page has changed too
    } catch {
      pause = Math.min(pause * 2, 60);
    }
    wait();
  };
  const live = find(document);
  pause = Number(live?.dataset.live || 0);
  if (pause) wait();
})();
