// Says to a screen reader what happened, where the eye would see it. Owns the one live region.
// Only what a person did, or must know now, is said: never data that ticks.

export function announce(text) {
  const region = document.getElementById("announcer");
  region.textContent = "";
  requestAnimationFrame(() => { region.textContent = text; });
}
