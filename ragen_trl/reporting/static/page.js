// The rest of the page: words explained under the mouse, and a page that is served follows its run.

for (const head of document.querySelectorAll("th")) if (WORDS.has(head.textContent)) head.title = WORDS.get(head.textContent);

const version = document.documentElement.dataset.version; // only of a page that `report --watch` serves
const folded = () => [...document.querySelectorAll("details")].filter((one) => !one.closest("#viewer"));

/** Load the newer page, unless somebody is typing; the address keeps what the viewer shows, this the rest. */
async function follow() {
  const typing = document.activeElement && document.activeElement.matches("input, select");
  const now = await fetch("version").then((answer) => answer.text()).catch(() => version);
  if (typing || now === version) return;
  sessionStorage.setItem("place", JSON.stringify({ scroll: window.scrollY, open: folded().map((one) => one.open) }));
  location.reload();
}

function restore() {
  const place = JSON.parse(sessionStorage.getItem("place") || "null");
  if (!place) return;
  folded().forEach((one, index) => { one.open = Boolean(place.open[index]); });
  window.scrollTo(0, place.scroll);
  sessionStorage.removeItem("place");
}

if (version) {
  if (page.runs.length) document.addEventListener("drawn", restore, { once: true });
  else restore();
  setInterval(follow, 2000);
}
