// Questions that must be answered first, and texts to be copied by hand.

import { element } from "./nodes.js";

function open(title, inside, buttons) {
  const dialog = element("dialog", { "aria-labelledby": "dialog-title" },
    element("h2", { id: "dialog-title" }, title), ...inside, element("div", { class: "dialog-buttons" }, ...buttons));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  return dialog;
}

// Whether it was confirmed. Whoever presses Enter at once has not.
export function confirmed(title, text, does) {
  return new Promise((resolve) => {
    const cancel = element("button", { type: "button", class: "quiet" }, "Cancel");
    const go = element("button", { type: "button", class: "danger" }, does);
    const dialog = open(title, [element("p", {}, text)], [cancel, go]);
    let answer = false;
    cancel.addEventListener("click", () => dialog.close());
    go.addEventListener("click", () => { answer = true; dialog.close(); });
    dialog.addEventListener("close", () => resolve(answer));
    cancel.focus();
  });
}

export function showNote(title, text) {
  const close = element("button", { type: "button", class: "quiet" }, "Close");
  const dialog = open(title, [element("p", {}, text)], [close]);
  close.addEventListener("click", () => dialog.close());
}

export function showText(title, text) {
  const field = element("textarea", { rows: 6, readonly: "", "aria-label": title });
  field.value = text;
  const close = element("button", { type: "button", class: "quiet" }, "Close");
  const dialog = open(title, [field], [close]);
  close.addEventListener("click", () => dialog.close());
  field.select();
}
