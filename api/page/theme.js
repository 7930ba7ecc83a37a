// Light or dark: as the system has it, until it is chosen here.

import { $ } from "./state.js";

const KEPT = "decaysketch-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const painters = [];

// `paint()`: colours changed, and a canvas does not follow by itself.
export const onTheme = (paint) => painters.push(paint);

export function showTheme() {
  const kept = localStorage.getItem(KEPT);
  const isDark = kept ? kept === "dark" : dark.matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", isDark);
  for (const paint of painters) paint();
}

$("theme").addEventListener("click", () => {
  localStorage.setItem(KEPT, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  showTheme();
});
dark.addEventListener("change", showTheme);
