// Sends a choice of an option at once, and puts the keyboard back where it was. Without this the "Choose" button does.
document.documentElement.classList.add("scripted");
for (const radio of document.querySelectorAll(".radio-toolbar input")) {
  radio.addEventListener("change", () => {
    window.location.href = radio.dataset.url + "#" + encodeURIComponent(radio.id);
  });
}
const chosen = document.getElementById(decodeURIComponent(window.location.hash.slice(1)));
if (chosen instanceof HTMLInputElement) {
  chosen.focus({ preventScroll: true });
}
