// Nodes of the page, made of names, attributes and children: never of text that is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A list of what is what; the nodes stay where nothing changed, so that what is marked stays marked.
export function facts(list, pairs) {
  const shape = pairs.map(([name]) => name).join();
  if (list.dataset.shape !== shape) {
    list.dataset.shape = shape;
    list.replaceChildren(...pairs.map(([name]) => element("div", {}, element("dt", {}, name), element("dd"))));
  }
  pairs.forEach(([, value], i) => {
    const held = list.children[i].lastChild;
    if (typeof value !== "string") held.replaceChildren(value);
    else if (held.textContent !== value || held.childElementCount) held.textContent = value;
  });
}
