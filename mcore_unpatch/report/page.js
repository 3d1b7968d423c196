const form = document.querySelector("form");
const cards = [...document.querySelectorAll("article")].map((card) => ({ card, text: card.textContent.toLowerCase() }));
const shown = document.querySelector("#shown");
const chosen = (name) => new Set([...form.querySelectorAll(`[name=${name}]:checked`)].map((box) => box.value));
document.body.classList.add("live");
function filter() {
  const words = form.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const [only, kinds, groups] = ["only", "kind", "group"].map(chosen);
  const grouped = form.querySelector("[name=group]") !== null;
  let count = 0;
  for (const { card, text } of cards) {
    const { kind, mark, group } = card.dataset;
    const wanted = kinds.has(kind) && (!only.size || only.has(mark)) && (!grouped || groups.has(group));
    card.hidden = !wanted || !words.every((word) => text.includes(word));
    count += !card.hidden;
  }
  shown.textContent = `${count} of ${cards.length} shown`;
}
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
filter();
