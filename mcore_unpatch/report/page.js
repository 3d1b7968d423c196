const form = document.querySelector("form");
const cards = [...document.querySelectorAll("article")];
const shown = document.querySelector("#shown");
form.hidden = false;
function filter() {
  const words = form.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const kinds = new Set([...form.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value));
  let count = 0;
  for (const card of cards) {
    const text = card.textContent.toLowerCase();
    card.hidden = !kinds.has(card.dataset.kind) || !words.every((word) => text.includes(word));
    count += !card.hidden;
  }
  shown.textContent = `${count} of ${cards.length} shown`;
}
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
filter();
