"use strict";
// Adds to a complete page: find, filter, order and copy. The state is in the address, so that a filtered view can be sent on.
(() => {
  const form = document.querySelector(".filter"), list = document.querySelector(".cards");
  const cards = [...list.querySelectorAll(".card")], boxes = [...form.querySelectorAll("[name=v]")];
  const text = new Map(cards.map((card) => [card, card.textContent.toLowerCase()]));
  const number = (value) => (value === "" ? Infinity : Number(value));
  const orders = {
    id: (a, b) => (a.id < b.id ? -1 : 1),
    margin: (a, b) => number(a.dataset.margin) - number(b.dataset.margin),
    time: (a, b) => Number(b.dataset.time) - Number(a.dataset.time),
  };
  const show = () => {
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const query = form.q.value.trim().toLowerCase();
    let shown = 0;
    for (const card of cards) {
      const fits = wanted.has(card.dataset.verdict) && (!form.area.value || card.dataset.area === form.area.value) && text.get(card).includes(query);
      card.hidden = !fits;
      shown += fits;
    }
    list.append(...(orders[form.sort.value] ? [...cards].sort(orders[form.sort.value]) : cards));
    form.querySelector("output").textContent = `${shown} of ${cards.length} shown`;
  };
  const write = () => {
    const state = new URLSearchParams();
    if (form.q.value.trim()) state.set("q", form.q.value.trim());
    if (boxes.some((box) => !box.checked)) state.set("v", boxes.filter((box) => box.checked).map((box) => box.value).join(","));
    if (form.area.value) state.set("area", form.area.value);
    if (form.sort.value) state.set("sort", form.sort.value);
    history.replaceState(null, "", state.size ? `#?${state}` : "#criteria");
  };
  const read = () => {
    if (!location.hash.startsWith("#?")) return reveal();
    const state = new URLSearchParams(location.hash.slice(2)), verdicts = state.get("v");
    form.q.value = state.get("q") ?? "";
    form.area.value = state.get("area") ?? "";
    form.sort.value = state.get("sort") ?? "";
    for (const box of boxes) box.checked = verdicts === null || verdicts.split(",").includes(box.value);
    show();
  };
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const card = target.closest(".card");
    if (card && card.hidden) { form.reset(); show(); }
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  form.hidden = false;
  form.addEventListener("input", () => { show(); write(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", read);
  show();
  read();
  for (const button of document.querySelectorAll(".copy")) {
    if (!navigator.clipboard) break;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "selected";
      }
    });
  }
})();
