const form = document.querySelector("form");
const shown = document.querySelector("#shown");
const rows = [...document.querySelectorAll("main > details")].map((row) => ({ row, text: row.textContent.toLowerCase() }));
const chosen = (name) => new Set([...form.querySelectorAll(`[name=${name}]:checked`)].map((box) => box.value));
document.body.classList.add("live");

function filter() {
  const words = form.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const [marks, verbs] = [chosen("mark"), chosen("verb")];
  const same = (name, value) => !form[name] || !form[name].value || form[name].value === value;
  let count = 0;
  for (const { row, text } of rows) {
    const { mark, verb, folder, origin } = row.dataset;
    const wanted = marks.has(mark) && verbs.has(verb) && same("folder", folder) && same("origin", origin);
    row.hidden = !wanted || !words.every((word) => text.includes(word));
    count += !row.hidden;
  }
  shown.textContent = `${count} of ${rows.length} shown`;
}

function move(step) {
  const heads = rows.filter(({ row }) => !row.hidden).map(({ row }) => row.firstElementChild);
  const at = heads.indexOf(document.activeElement.closest("summary"));
  const next = heads[at < 0 ? 0 : Math.min(Math.max(at + step, 0), heads.length - 1)];
  if (next) next.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return document.activeElement.blur();
  if (/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) return;
  const keys = { j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1) };
  keys["/"] = () => form.search.focus();
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
filter();
